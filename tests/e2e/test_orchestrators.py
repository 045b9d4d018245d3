"""Two orchestrators on one database and one Redis: both schedule, sweep and stream, and either may be killed."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mathrag_gate.stack.redis import find_free_port
from tests.running import DEADLINE_S, JUDGED, REPOSITORY, Document, RunningStack, Service, ended, running_stack

JOB: dict[str, Any] = {"reuse": "none", "params": JUDGED}
"""Every job computes everything anew."""
LONGER = {"reuse": "none", "repeats": 4, "params": {**JUDGED, "generate": {"temperature": 0.7}}}


class Second(Service):
    """An orchestrator beside that of a stack. No supervisor starts it again."""

    def __init__(self, url: str, process: "subprocess.Popen[bytes]") -> None:
        super().__init__(url)
        self.process = process


@contextmanager
def second_orchestrator(stack: RunningStack) -> Iterator[Second]:
    port = find_free_port()
    environment = {**os.environ, "MATHRAG_DATA_DIR": str(stack.data_dir), **stack.addresses()}
    command = [sys.executable, "-P", "-m", "services.orchestrator", "--port", str(port)]
    with (
        (stack.data_dir / "second.log").open("wb") as log,
        subprocess.Popen(command, cwd=REPOSITORY, env=environment, stdout=log, stderr=log) as process,
    ):
        second = Second(f"http://127.0.0.1:{port}", process)
        try:
            assert second.get("/healthz") == {"status": "ok"}
            yield second
        finally:
            process.kill()
            second.api.close()


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("orchestrators")
    with running_stack(folder / "data") as running:
        running.furnish(folder / "world", items=40)
        yield running


Event = tuple[str, str]
"""Id and type of an event."""


def read_events(service: Service, job: str, after: str | None = None, *, most: int | None = None) -> list[Event]:
    """Read the events of a job after the one named, up to its end or `most` of them."""
    headers = {"Last-Event-ID": after} if after else {}
    found: list[Event] = []
    with service.api.stream("GET", f"/v1/jobs/{job}/events", headers=headers, timeout=DEADLINE_S) as reply:
        assert reply.status_code == 200, reply.read()
        fields: dict[str, str] = {}
        for line in reply.iter_lines():
            name, _, value = line.partition(": ")
            if value and name in ("event", "id"):
                fields[name] = value
            elif not line and fields:
                found.append((fields["id"], fields["event"]))
                fields = {}
                if len(found) == most:
                    break
    return found


def test_two_schedulers_load_each_model_once(stack: RunningStack) -> None:
    with second_orchestrator(stack) as second:
        job = second.submit("by-two", **JOB)
        stack.assert_whole(job)
        assert stack.get(f"/v1/jobs/{job}/report") == second.get(f"/v1/jobs/{job}/report")
        assert stack.get(f"/v1/jobs/{job}/report")["model_loads"] == 2


def test_a_stream_of_events_continues_at_the_other_orchestrator(stack: RunningStack) -> None:
    with second_orchestrator(stack) as second:
        job = second.submit("streamed", **JOB)
        begun = read_events(second, job, most=3)
        rest = read_events(stack, job, after=begun[-1][0])
        assert rest[-1][1] == "state"
        assert not {seen for seen, _ in begun} & {seen for seen, _ in rest}
        versions = [int(seen.partition(".")[0]) for seen, event in begun + rest if event == "state"]
        assert versions == list(range(versions[0], versions[-1] + 1))
        assert stack.get(f"/v1/jobs/{job}")["state"] == "completed"


def test_a_job_outlives_the_orchestrator_that_took_it(stack: RunningStack) -> None:
    with second_orchestrator(stack) as second:
        job = second.submit("taken-and-killed", **LONGER)
        begun = read_events(second, job, most=3)
        second.wait(job, generates)
        second.process.kill()
        second.process.wait()
        assert not ended(stack.get(f"/v1/jobs/{job}"))
        assert read_events(stack, job, after=begun[-1][0])[-1][1] == "state"
    stack.assert_whole(job)


def test_a_job_outlives_the_orchestrator_of_the_stack(stack: RunningStack) -> None:
    with second_orchestrator(stack) as second:
        job = stack.submit("other-killed", **LONGER)
        begun = read_events(stack, job, most=3)
        stack.wait(job, generates)
        stack.kill("orchestrator")
        assert not ended(second.get(f"/v1/jobs/{job}"))
        assert read_events(second, job, after=begun[-1][0])[-1][1] == "state"
        second.assert_whole(job)


def generates(document: Document) -> bool:
    """Whether a job is in the middle of its last stage."""
    return bool(document["stages"].get("generate", {}).get("done", 0) >= 5)
