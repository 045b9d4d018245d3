"""A host that runs out of a resource, or goes down: the job waits or continues, and ends complete."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx2
import psutil
import pytest

from shared.settings import REPOSITORY
from tests.faults import limits
from tests.faults.limits import Disk
from tests.faults.processes import until
from tests.faults.real import done
from tests.faults.trial import IN_FLIGHT, JOB, Trial
from tests.faults.vocabulary import Subject
from tests.running import Document

MODELS = [REPOSITORY / "models" / f"world-{role}-f16.gguf" for role in ("judge", "generator")]
ENOUGH = 0.9
"""The part of its peak that a group keeps; the rest was file cache."""


@pytest.fixture
def full(disk: Disk | None) -> Iterator[Disk]:
    if disk is None:
        pytest.skip("mounting a small file system needs root")
    disk.fill()
    try:
        yield disk
    finally:
        disk.relieve()


@pytest.mark.fault("H1")
def test_a_disk_without_room_for_logs_costs_lines(trial: Trial, full: Disk) -> None:
    trial.seen.describe("logs and indexes lie on a tmpfs that is full while a job runs")
    trial.ends_whole(trial.stack.submit("H1", **JOB))
    assert limits.room(full.folder) == 0
    trial.seen.note("log lines are lost; the job completes")


@pytest.mark.fault("H1")
def test_a_disk_without_room_for_an_index_refuses_the_corpus_in_words(trial: Trial, full: Disk, tmp_path: Path) -> None:
    trial.seen.describe("the same while a corpus is uploaded")
    corpus = b'{"id": "only", "text": "The sum of two and two is four."}\n'
    refused = trial.stack.api.post("/v1/corpora", params={"name": "roomless"}, content=corpus)
    assert refused.status_code >= 500
    assert "space" in refused.json()["detail"]
    full.relieve()
    accepted = trial.stack.api.post("/v1/corpora", params={"name": "roomless"}, content=corpus)
    assert accepted.is_success
    trial.ends_whole(trial.stack.submit("H1", **{**JOB, "corpus": "roomless", "pipeline": "hybrid", "params": {}}))
    trial.seen.note("an index without room is refused with a message; the same upload builds it later")


@pytest.mark.fault("H2")
def test_short_memory_makes_loads_wait_for_the_disk(trial: Trial) -> None:
    trial.seen.describe(
        "a cgroup gives guard and model servers a tenth less memory than they take, and model files are evicted"
    )
    try:
        with limits.run_in_group(f"mathrag-faults-{os.getpid()}", trial.processes.of(Subject.GUARD)) as group:
            trial.ends_whole(trial.stack.submit("H2", **JOB))
            group.limit(int(group.peak() * ENOUGH))
            limits.evict(*MODELS)
            trial.ends_whole(trial.stack.submit("H2", **JOB))
            assert group.count_hits() > 0
            trial.seen.figure("times that the limit was met", group.count_hits())
    except PermissionError as error:
        pytest.skip(str(error))
    trial.seen.note("loads read the disk again; these models are too small to show the tenfold time of large ones")


@pytest.mark.fault("H3")
@pytest.mark.parametrize("subject", [Subject.GUARD, Subject.ORCHESTRATOR], ids=str)
def test_a_service_without_descriptors_takes_no_connection_and_lives(trial: Trial, subject: Subject) -> None:
    trial.seen.describe("prlimit leaves guard or orchestrator no file descriptor until it has refused a connection")
    job = trial.stack.submit("H3", **JOB)
    trial.stack.wait(job, partial(is_judged, trial.whole["judge"] * 0.3))
    service = trial.processes.of(subject)[0]
    url = trial.stack.url if subject is Subject.ORCHESTRATOR else trial.stack.service_url("guard")
    with limits.no_descriptor_left(service):
        until("new clients are refused", lambda: not answers(url))
    trial.ends_whole(job)
    assert service.is_running()
    trial.seen.note("the process stays alive and accepts new clients again when a descriptor is free")


@pytest.mark.fault("H4")
def test_a_reboot_of_the_host_costs_what_was_in_flight(trial: Trial) -> None:
    trial.seen.describe(
        "SIGKILL of every process at once, PostgreSQL and Redis among them, at 30 % of the judge's calls"
    )
    job = trial.stack.submit("H4", **JOB)
    trial.stack.wait(job, partial(is_judged, trial.whole["judge"] * 0.3))
    dead = trial.processes.signal(Subject.EVERYTHING, signal.SIGKILL)
    _, alive = psutil.wait_procs(dead, timeout=60)
    assert not alive
    trial.processes.start()
    report = trial.ends_whole(job)
    assert report["calls_lapsed"] <= IN_FLIGHT
    trial.seen.note("the job continues without intervention once the services are started again")


def is_judged(goal: float, document: Document) -> bool:
    return done(document, "judge") >= goal


def answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/healthz", timeout=1, trust_env=False).is_success
    except httpx2.TransportError:
        return False
