"""Stacks that work with real servers, and what every job on them must come to."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.faults.gates import Session
from tests.faults.processes import Processes, until
from tests.faults.real import done
from tests.faults.vocabulary import Subject
from tests.running import JUDGED, Document, RunningStack, running_stack

ITEMS = 300
"""Enough that a server can be killed in the middle of a job's searches."""
SIXTY = {"params": JUDGED, "limit": 60}
SERVED = """
    SELECT DISTINCT m.backend FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id
    JOIN calls c ON c.id = t.call_id JOIN models m ON m.id = c.model_id
    WHERE CAST(j.public_id AS text) = $1 AND c.role IN ('judge', 'generate')"""


@contextmanager
def furnished(folder: Path, settings: dict[str, Any]) -> Iterator[RunningStack]:
    """A stack with these settings, and the problem world in it."""
    config = folder / "mathrag.yaml"
    config.write_text(json.dumps(settings))
    with running_stack(folder / "data", MATHRAG_CONFIG=str(config)) as stack:
        stack.furnish(folder / "world", items=ITEMS)
        yield stack


def ends_whole(stack: RunningStack, name: str) -> Document:
    """The report of a job of 60 questions: it has ended with every sample and a clean audit, in two loads."""
    job = stack.submit(name, **SIXTY)
    stack.assert_whole(job)
    report: Document = stack.get(f"/v1/jobs/{job}/report")
    assert (report["request_counts"]["total"], report["model_loads"]) == (60, 2)
    return report


def survives_a_kill(stack: RunningStack) -> None:
    """A model's program is killed in a job: the model is loaded again, and the calls that it had are made again."""
    job = stack.submit("killed", reuse="none", **SIXTY)
    stack.wait(job, lambda document: done(document, "judge") >= 20)
    processes = Processes(stack)
    until("a model is loaded", processes.servers)
    processes.kill(Subject.SERVER)
    stack.assert_whole(job)


def assert_served_by(stack: RunningStack, job: str, backend: str) -> None:
    """Judge and generator were models of this program."""
    with Session(stack) as session:
        assert [found for (found,) in session.rows(SERVED, job)] == [backend]
