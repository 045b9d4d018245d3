"""Graders of plug-ins mark in processes of their own: what one of them does to its process is its own answer's fate."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from services.judge.grade_executor import GradeExecutor
from shared.contracts.calls import Grade
from shared.contracts.params import GradingParams, Params
from shared.contracts.replies import Failure, FailureKind, Marked, Reply
from shared.pipelines.binding import Binding, Pin, bind
from shared.plugins import loading
from shared.plugins.catalogue import Plugin
from shared.processes.grading_pool import GradingPool
from shared.runtime.answers import AnsweredCall
from shared.runtime.claims import ClaimedCall
from shared.runtime.execution import Wait
from shared.runtime.models import grader_identity
from tests import plugins
from tests.plugins import marking, restart

pytestmark = pytest.mark.anyio

DEADLINE_S = 0.5
UNPARSED, TIMEOUT, BROKEN = FailureKind.UNPARSED, FailureKind.GRADER_TIMEOUT, FailureKind.BACKEND_ERROR
BODIES: dict[str, tuple[str, FailureKind | Marked]] = {
    "fair": ("return Marked(correct=answer == gold, score=0.5)", Marked(correct=True, score=0.5)),
    "loops": ("while True: pass", TIMEOUT),
    "leaves": ("import os; os._exit(7)", BROKEN),
    "raises": ("raise KeyError(answer)", UNPARSED),
    "unfit": ("raise InvalidGold('the gold answer is a pear')", UNPARSED),
    "wordy": ("return 'right'", UNPARSED),
    "proud": ("return Marked(correct=True, score=7.0)", UNPARSED),
    "loud": ("print('{'); return Marked(correct=True)", Marked(correct=True)),
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[plugins.Site]:
    """A folder with a grader of each of `BODIES`, loaded."""
    made = plugins.site(tmp_path, monkeypatch)
    for name, (body, _) in BODIES.items():
        install(made, name, body)
    restart(monkeypatch)
    yield made
    loading._loaded = loading.Loaded()


def install(site: plugins.Site, name: str, body: str) -> None:
    """A grader with this body."""
    site.install(name, marking(name, body), kind="grader", value=f"plugin_{name}:GRADER")


@pytest.fixture
async def grades() -> AsyncIterator[GradeExecutor]:
    """The judge's executor."""
    pools: list[GradingPool] = []

    def open_pool(plugin: Plugin) -> GradingPool:
        pools.append(GradingPool(1, DEADLINE_S, plugin))
        return pools[-1]

    async with GradingPool(1) as shipped:
        yield GradeExecutor(shipped, open_pool)
    for pool in pools:
        await pool.close()


def calls(*names: str) -> dict[int, ClaimedCall]:
    """A grade call of each of these graders, for an answer that is the gold one; by id."""
    made = {}
    for number, name in enumerate(names):
        pins = {"grade": Pin(model_id=1, hash=grader_identity(name).hash.hex())}
        bound = bind(
            Grade(answer="4", gold="4"),
            Binding(pins=pins, params=Params(grading=GradingParams(grader=name))),
            0,
        )
        made[number] = ClaimedCall(id=number, key=bound.key, role="grade", model_id=1, request=bound.body)
    return made


async def replies(grades: GradeExecutor, asked: dict[int, ClaimedCall]) -> dict[int, Reply | Wait]:
    """What becomes of each."""
    ends = [end async for end in grades.run(list(asked.values()), None)]
    return {end.call_id: end.reply if isinstance(end, AnsweredCall) else end for end in ends}


async def test_each_grader_ends_its_own_answer_as_it_deserves(site: plugins.Site, grades: GradeExecutor) -> None:
    """One that loops, ends its process, raises or returns nonsense gives a failure; the others' verdicts stand."""
    found = await replies(grades, calls(*BODIES, "math"))
    said = {name: found[number] for number, name in enumerate((*BODIES, "math"))}
    assert {
        name: reply.kind if isinstance(reply, Failure) else reply for name, reply in said.items() if name != "math"
    } == {name: expected for name, (_, expected) in BODIES.items()}
    assert isinstance(said["raises"], Failure)
    assert said["raises"].detail == "grader 'raises' raised KeyError: '4'"
    assert isinstance(said["proud"], Failure)
    assert "its score must be from 0 to 1, and is 7.0" in said["proud"].detail
    assert not isinstance(said["math"], Failure)


async def test_a_grader_of_other_code_than_its_calls_are_keyed_by_grades_nothing(
    site: plugins.Site, grades: GradeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Changed under the running worker, or known after a restart: the call waits, and is not answered by other code."""
    asked = calls("fair")
    install(site, "fair", "return Marked(correct=False)")
    assert [type(end) for end in (await replies(grades, asked)).values()] == [Wait]
    restart(monkeypatch)
    [end] = (await replies(grades, asked)).values()
    assert isinstance(end, Wait)
    assert end.what == "the plug-in's grader 'fair'"
    assert isinstance((await replies(grades, calls("fair")))[0], Marked)
