"""Calls that a kill interrupted run again alone, and a deterministic model gives the same answers."""

import asyncio
import json
from collections.abc import Iterator

import pytest

from tests.faults.gates import Session
from tests.faults.real import RealBackEnd
from tests.faults.recording import Seen
from tests.faults.trial import JOB, SOONER, Trial
from tests.faults.vocabulary import Scenario, Subject, at, at_generated_share, at_judged_share, kill
from tests.running import REPOSITORY, Document, RunningStack, running_stack

ITEMS = 60
GREEDY = {**JOB, "params": {**JOB["params"], "judge": {"temperature": 0.0}}}
"""With `reuse: none` each job has different seeds, and the judge's default temperature is 0.1."""
KILLS = (
    at(at_judged_share(0.2), kill(Subject.JUDGE)),
    at(at_judged_share(0.6), kill(Subject.GUARD)),
    at(at_generated_share(0.2), kill(Subject.GENERATOR)),
    at(at_generated_share(0.6), kill(Subject.SERVER)),
)
REPLIES = """
    SELECT c.role, s.kind, s.ordinal, t.position, t.slot, convert_from(a.reply, 'UTF8') AS reply, o.answer
    FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
    JOIN attempts a ON a.call_id = c.id AND a.accepted LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE j.public_id = CAST($1 AS uuid) AND c.role IN ('judge', 'generate')
    ORDER BY s.kind, s.ordinal, t.position, t.slot"""


@pytest.fixture(scope="module")
def deterministic_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("determinism")
    models = {
        f"world-{name}": {
            "driver": "process",
            "path": str(REPOSITORY / "models" / f"world-{name}-f16.gguf"),
            "footprint_mib": 96,
            "deterministic": True,
        }
        for name in ("judge", "generator")
    }
    with running_stack(folder / "data", MATHRAG_MODELS=json.dumps(models), **SOONER) as running:
        running.furnish(folder / "world", items=ITEMS)
        yield running


@pytest.mark.fault("B21")
def test_kills_change_no_reply_of_a_deterministic_model(deterministic_stack: RunningStack, seen: Seen) -> None:
    seen.describe("SIGKILL of worker, guard and model server in both stages of a greedy job with `reuse: none`")
    stack = deterministic_stack
    undisturbed = stack.submit("undisturbed", **GREEDY)
    stack.assert_whole(undisturbed)
    expected = replies(stack, undisturbed)
    whole = stack.get(f"/v1/jobs/{undisturbed}/report")["calls_made"]
    disturbed = stack.submit("B21", **GREEDY)
    asyncio.run(RealBackEnd(stack, disturbed, whole).play(Scenario("B21", KILLS)))
    report: Document = Trial(stack, whole, seen).ends_whole(disturbed)
    assert report["calls_lapsed"] > 0
    assert len(expected) > ITEMS
    assert replies(stack, disturbed) == expected
    seen.note("every rating, text and answer equals that of the undisturbed run")


def replies(stack: RunningStack, job: str) -> list[tuple[object, ...]]:
    with Session(stack) as session:
        return [tuple(row) for row in session.rows(REPLIES, job)]
