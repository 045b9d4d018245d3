"""Graders of plug-ins mark in processes of their own: what one of them does to its process is its own answer's fate."""

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

import pytest

from services.judge.executors import GradeExecutor
from shared.calls import Grade
from shared.params import GradingParams, Params
from shared.pipelines.binding import Binding, Pin, bind
from shared.plugins import loading
from shared.plugins.catalogue import Plugin
from shared.processes.grading_pool import GradingPool
from shared.replies import Failure, FailureKind, Marked, Reply
from shared.runtime.pins import grader_identity
from shared.runtime.queue import AnsweredCall, ClaimedCall
from shared.runtime.worker import Wait
from tests import plugins
from tests.plugins import marking, restart

pytestmark = pytest.mark.anyio

DEADLINE_S = 0.3
UNPARSED, TIMEOUT, BROKEN = FailureKind.UNPARSED, FailureKind.GRADER_TIMEOUT, FailureKind.BACKEND_ERROR
FAIR = "return Marked(correct=answer == gold, score=0.5)"
BODIES = {"fair": FAIR, "loops": "while True: pass", "leaves": "import os; os._exit(7)"}
FICKLE: dict[str, tuple[str, FailureKind | Marked]] = {
    "raises": ("raise KeyError(answer)", UNPARSED),
    "unfit": ("raise InvalidGold('the gold answer is a pear')", UNPARSED),
    "wordy": ("return 'right'", UNPARSED),
    "proud": ("return Marked(correct=True, score=7.0)", UNPARSED),
    "loud": ("print('{'); return Marked(correct=True)", Marked(correct=True)),
}
"""By answer, what a fourth grader does, in one process."""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[plugins.Site]:
    made = plugins.site(tmp_path, monkeypatch)
    for name, body in BODIES.items():
        install(made, name, body)
    lines = [f"if answer == {answer!r}:\n        {body}" for answer, (body, _) in FICKLE.items()]
    install(made, "fickle", "\n    ".join([*lines, FAIR]))
    restart(monkeypatch)
    yield made
    loading._loaded = loading.Loaded()


def install(site: plugins.Site, name: str, body: str) -> None:
    site.install(name, marking(name, body), kind="grader", value=f"plugin_{name}:GRADER")


@pytest.fixture
async def grades() -> AsyncIterator[GradeExecutor]:
    pools: list[GradingPool] = []

    def open_pool(plugin: Plugin) -> GradingPool:
        pools.append(GradingPool(1, DEADLINE_S, plugin))
        return pools[-1]

    async with GradingPool(1) as shipped:
        yield GradeExecutor(shipped, open_pool)
    for pool in pools:
        await pool.close()


def calls(*names: str, answers: Sequence[str] = ()) -> dict[int, ClaimedCall]:
    made = {}
    for number, (name, answer) in enumerate(zip(names, answers or ["4"] * len(names), strict=True)):
        pins = {"grade": Pin(model_id=1, hash=grader_identity(name).hash.hex())}
        bound = bind(
            Grade(answer=answer, gold="4"),
            Binding(pins=pins, params=Params(grading=GradingParams(grader=name))),
            0,
        )
        made[number] = ClaimedCall(id=number, key=bound.key, role="grade", model_id=1, request=bound.body)
    return made


async def replies(grades: GradeExecutor, asked: dict[int, ClaimedCall]) -> dict[int, Reply | Wait]:
    ends = [end async for end in grades.run(list(asked.values()), None)]
    return {end.call_id: end.reply if isinstance(end, AnsweredCall) else end for end in ends}


async def test_each_grader_ends_its_own_answer_as_it_deserves(site: plugins.Site, grades: GradeExecutor) -> None:
    names = [*BODIES, *["fickle"] * (len(FICKLE) + 1), "math"]
    answers = ["4"] * len(BODIES) + [*FICKLE, "4", "4"]
    found = await replies(grades, calls(*names, answers=answers))
    said = {name: found[number] for number, name in enumerate([*BODIES, *FICKLE, "fickle", "math"])}
    assert not isinstance(said["math"], Failure)
    fair = Marked(correct=True, score=0.5)
    expected = {"fair": fair, "loops": TIMEOUT, "leaves": BROKEN, "fickle": fair}
    assert {
        name: reply.kind if isinstance(reply, Failure) else reply for name, reply in said.items() if name != "math"
    } == expected | {answer: end for answer, (_, end) in FICKLE.items()}
    assert isinstance(said["raises"], Failure)
    assert said["raises"].detail == "grader 'fickle' raised KeyError: 'raises'"
    assert isinstance(said["proud"], Failure)
    assert "its score must be from 0 to 1, and is 7.0" in said["proud"].detail


async def test_a_grader_of_other_code_than_its_calls_are_keyed_by_grades_nothing(
    site: plugins.Site, grades: GradeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = calls("fair")
    install(site, "fair", "return Marked(correct=False)")
    assert [type(end) for end in (await replies(grades, asked)).values()] == [Wait]
    restart(monkeypatch)
    [end] = (await replies(grades, asked)).values()
    assert isinstance(end, Wait)
    assert end.what == "the plug-in's grader 'fair'"
    assert isinstance((await replies(grades, calls("fair")))[0], Marked)
