"""kill -9 of each process in each state of a batch: it reaches its end state, and each line is answered once."""

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import openai
import pytest
from openai.types import Batch

from tests.faults.gates import Gate, Session, Write, gate
from tests.faults.processes import until
from tests.faults.trial import Trial
from tests.faults.vocabulary import Subject

pytestmark = pytest.mark.fault("P15")

MODELS = ("world-judge", "world-generator", "mathrag-gate@world")
LINES = 60
VICTIMS = (Subject.ORCHESTRATOR, Subject.JUDGE, Subject.GENERATOR, Subject.GUARD)
ENDED = ("completed", "failed", "expired", "cancelled")
STARTS = Write("batches", "UPDATE", "NEW.state = 'in_progress'")
ENDS = Write("batches", "UPDATE", "NEW.ended_at IS NOT NULL")
EXPIRES = "UPDATE batches SET expires_at = now() WHERE public_id = $1::uuid"
JOBS = """
    SELECT k.job::text FROM batch_jobs k JOIN batches b ON b.id = k.batch_id WHERE b.public_id = $1::uuid"""


class Asked:
    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._client = openai.OpenAI(base_url=f"{trial.stack.url}/openai/v1", api_key="any", max_retries=20)
        self._salt = secrets.token_hex(3)
        content = b"".join(json.dumps(self._line(n)).encode() + b"\n" for n in range(LINES))
        file = self._client.files.create(file=content, purpose="batch")
        self._id = self._client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        ).id

    def _line(self, number: int) -> dict[str, Any]:
        message = {"role": "user", "content": f"What is {number} plus 1? {self._salt}"}
        body = {"model": MODELS[number % 3], "messages": [message], "temperature": 0, "max_tokens": 30}
        return {"custom_id": f"q{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}

    def now(self) -> Batch:
        return self._client.batches.retrieve(self._id)

    def reaches(self, state: str, lines: int = 0) -> None:
        until(f"the batch is {state}", lambda: self.now().status == state and self._count_answered() >= lines, 0.05)

    def _count_answered(self) -> int:
        counts = self.now().request_counts
        return counts.completed if counts else 0

    def cancel(self) -> None:
        self._client.batches.cancel(self._id)

    def expire(self) -> None:
        with Session(self._trial.stack) as session:
            session.rows(EXPIRES, self._id.removeprefix("batch_"))

    def ends_whole(self, state: str) -> Batch:
        until("the batch has ended", lambda: self.now().status in ENDED, 0.1)
        batch = self.now()
        assert batch.status == state, batch
        files = [file for file in (batch.output_file_id, batch.error_file_id) if file]
        lines = [json.loads(line) for file in files for line in self._client.files.content(file).text.splitlines()]
        assert sorted(line["custom_id"] for line in lines) == sorted(f"q{n}" for n in range(LINES))
        with Session(self._trial.stack) as session:
            jobs = [row["job"] for row in session.rows(JOBS, self._id.removeprefix("batch_"))]
        assert [self._trial.stack.get(f"/v1/jobs/{job}/audit")["violations"] for job in jobs] == [[]] * len(MODELS)
        return batch


@contextmanager
def hold_batch(
    trial: Trial, write: Write, before: Callable[[Asked], None] = lambda _: None
) -> Iterator[tuple[Asked, Gate]]:
    with gate(trial.stack, write) as shut:
        asked = Asked(trial)
        before(asked)
        shut.wait_until_reached()
        yield asked, shut


def kill(trial: Trial, victim: Subject, shut: Gate) -> None:
    trial.seen.describe(
        "SIGKILL of orchestrator, judge, generator and guard while a gate holds the batch's transaction"
    )
    trial.processes.kill(victim)
    if victim is Subject.ORCHESTRATOR:
        shut.cut_off()


@pytest.mark.parametrize("victim", VICTIMS)
def test_while_its_lines_are_checked(trial: Trial, victim: Subject) -> None:
    with hold_batch(trial, STARTS) as (asked, shut):
        assert asked.now().status == "validating"
        kill(trial, victim, shut)
    assert asked.ends_whole("completed").error_file_id is None
    trial.seen.note("validating: the lines are checked again and submitted once")


@pytest.mark.parametrize("victim", VICTIMS)
def test_while_its_lines_are_answered(trial: Trial, victim: Subject) -> None:
    asked = Asked(trial)
    asked.reaches("in_progress", lines=5)
    trial.seen.describe("SIGKILL of each process once five of sixty lines are answered")
    trial.processes.kill(victim)
    assert asked.ends_whole("completed").error_file_id is None
    trial.seen.note("in_progress: all lines are answered")


@pytest.mark.parametrize("victim", VICTIMS)
def test_while_its_files_are_written(trial: Trial, victim: Subject) -> None:
    with hold_batch(trial, ENDS) as (asked, shut):
        assert asked.now().status == "finalizing"
        kill(trial, victim, shut)
    assert asked.ends_whole("completed").error_file_id is None
    trial.seen.note("finalizing: the files are written again, once")


def _cancel(asked: Asked) -> None:
    asked.reaches("in_progress", lines=5)
    asked.cancel()


def _expire(asked: Asked) -> None:
    asked.reaches("in_progress", lines=5)
    asked.expire()


@pytest.mark.parametrize("victim", VICTIMS)
@pytest.mark.parametrize(
    ("change", "during", "state"), [(_cancel, "cancelling", "cancelled"), (_expire, "finalizing", "expired")]
)
def test_while_it_is_cut_off(
    trial: Trial, victim: Subject, change: Callable[[Asked], None], during: str, state: str
) -> None:
    with hold_batch(trial, ENDS, change) as (asked, shut):
        assert asked.now().status == during
        kill(trial, victim, shut)
    counts = asked.ends_whole(state).request_counts
    assert counts is not None
    assert counts.completed >= 5
    trial.seen.note(f"{during}, then {state}: given answers are kept, the other lines say {state}")
