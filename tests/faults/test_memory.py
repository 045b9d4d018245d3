"""Memory that differs from a report: the device is quarantined by name, or waits, and every job ends complete.

The stack is real, its guard measures by the code that measures a real GPU; NVML itself and Ollama are stand-ins, so a
test decides the taken memory, its holder and the reports about it.
"""

import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import asyncpg
import pytest

from tests.doubles.chat_server import by_rule
from tests.doubles.gpu import Gpu
from tests.doubles.ollama_server import Ollama, serve_ollama
from tests.faults.backends import GpuBackEnd, behave
from tests.faults.gates import Session
from tests.faults.processes import until
from tests.faults.recording import Seen
from tests.faults.trial import SOONER, Trial, measure_calls
from tests.faults.vocabulary import (
    Event,
    Subject,
    at,
    at_generated_share,
    at_judged_share,
    hide,
    keep,
    lag,
    take,
)
from tests.faults.vocabulary import misbehave as misbehaves
from tests.running import RunningStack, running_stack

JUDGE, GENERATOR = "judge:0.5b", "generator:7b"
SIZES = {JUDGE: 1500, GENERATOR: 2500}
"""MiB, on a GPU of 4096 of which the driver has 200: either model fits, both do not."""
LAG_S = 4.0
ENDED = "SELECT epoch FROM residencies WHERE epoch >= $1 AND closed_at IS NOT NULL AND reason LIKE $2"
STRANGERS = "SELECT CAST(measured -> 'strangers_mib' AS int) AS mib FROM residencies ORDER BY epoch DESC LIMIT 1"
LONGEST = """
    SELECT CAST(max(extract(epoch FROM opened_at - wanted_at)) AS float) AS seconds FROM residencies WHERE epoch > $1"""

OTHERWISE = """
    SELECT a.id FROM attempts a JOIN steps t ON t.call_id = a.call_id JOIN samples s ON s.id = t.sample_id
    JOIN jobs j ON j.id = s.job_id WHERE j.public_id = CAST($1 AS uuid) AND a.outcome <> 'value'"""
"""Attempts of a job without a value."""


@dataclass(frozen=True)
class Rig:
    stack: RunningStack
    double: Ollama
    gpu: Gpu
    server: str
    whole: dict[str, int]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("memory")
    gpu = Gpu(folder / "gpu.json", f"GPU-{uuid.uuid4()}")
    double = Ollama(sizes=SIZES, gpu=gpu, answer=answer_slowly)
    for tag in SIZES:
        double.pull(tag)
    with serve_ollama(double) as server:
        config = folder / "mathrag.yaml"
        config.write_text(json.dumps(configuration(gpu, server.url)))
        environment = gpu.environment() | SOONER
        with running_stack(folder / "data", MATHRAG_CONFIG=str(config), **environment) as stack:
            stack.furnish(folder / "world", items=40)
            yield Rig(stack, double, gpu, server.url, measure_calls(stack))


def configuration(gpu: Gpu, server: str) -> dict[str, object]:
    models = {
        tag: {"driver": "ollama", "url": server, "parallel": 4, "footprint_mib": mib} for tag, mib in SIZES.items()
    }
    device = {"id": gpu.uuid, "budget_mib": 3000, "free_timeout_s": LAG_S + 1}
    return {"models": models, "roles": {"judge": JUDGE, "generate": GENERATOR}, "device": device}


def answer_slowly(prompt: str) -> str:
    time.sleep(0.025)
    return by_rule(prompt)


@dataclass(frozen=True)
class Ordeal(Trial):
    rig: Rig

    def begins(self, fault: str, *events: Event) -> str:
        self.seen.describe(f"{'; '.join(map(str, events))} (doubles of Ollama and NVML)")
        rig = self.rig
        return self.play(fault, events, lambda job: GpuBackEnd(self.stack, job, rig.whole, rig.gpu, rig.server))

    def epoch(self) -> int:
        with Session(self.stack) as session:
            return int(session.rows("SELECT COALESCE(max(epoch), 0) AS epoch FROM residencies")[0]["epoch"])

    def wait_for_reason(self, since: int, said: str) -> None:
        with Session(self.stack) as session:
            until(f"a residency ends with {said!r}", lambda: session.rows(ENDED, since, f"%{said}%"))
        self.seen.note(f"the reason on the residency: {said!r}")

    def rows(self, sql: str, *values: object) -> list[asyncpg.Record]:
        with Session(self.stack) as session:
            return session.rows(sql, *values)


@pytest.fixture
def ordeal(rig: Rig, seen: Seen) -> Iterator[Ordeal]:
    try:
        yield Ordeal(rig.stack, rig.whole, seen, rig)
    finally:
        behave(rig.server, rig.gpu)


QUARANTINES = [
    ("B8", at(at_judged_share(0.5), misbehaves(Subject.SERVER, "digest")), "ollama (pid 5000"),
    ("B9", at(at_judged_share(0.5), misbehaves(Subject.SERVER, "spill")), "MiB of judge:0.5b are not on the GPU"),
    ("B10", at(at_judged_share(0.5), keep(Subject.VRAM)), "360 MiB are missing"),
    ("B11", at(at_judged_share(0.5), misbehaves(Subject.SERVER, "keep_unlisted")), "360 MiB are missing"),
    ("B12", at(at_judged_share(0.5), misbehaves(Subject.SERVER, "stranger")), "ollama stop llama3:8b"),
    ("B13", at(at_judged_share(0.5), misbehaves(Subject.SERVER, "shrink")), "has a context of 512, not 1024"),
    ("B15", at(at_judged_share(0.5), take(Subject.VRAM, 3072)), "somebody (pid 6000000) holds 3072 MiB"),
    ("B17", at(at_generated_share(0.2), hide(Subject.NVML)), "cannot be measured: NVML: Driver Not Loaded"),
    ("B18", at(at_judged_share(0.5), hide(Subject.GPU)), "cannot be measured: NVML: GPU is lost"),
]


@pytest.mark.parametrize(
    ("fault", "event", "said"), [pytest.param(*row, marks=pytest.mark.fault(row[0]), id=row[0]) for row in QUARANTINES]
)
def test_a_device_that_is_not_as_it_should_be_is_quarantined_by_name_until_it_is(
    ordeal: Ordeal, fault: str, event: Event, said: str
) -> None:
    """No model is loaded over it, the reason names the defect, and afterwards the job ends without intervention.

    No server died, so no call is suspected.
    """
    since = ordeal.epoch()
    job = ordeal.begins(fault, event)
    ordeal.wait_for_reason(since, said)
    behave(ordeal.rig.server, ordeal.rig.gpu)
    assert ordeal.ends_whole(job)["calls_lapsed"] == 0


@pytest.mark.fault("B8")
@pytest.mark.parametrize(
    ("how", "said"),
    [("create", "'judge:0.5b' is not the one jobs were submitted with"), ("remove", "ollama (pid 5000")],
)
def test_a_tag_that_names_another_prompt_or_nothing_fails_and_files_nothing(
    ordeal: Ordeal, how: str, said: str
) -> None:
    since = ordeal.epoch()
    job = ordeal.begins("B8", at(at_judged_share(0.5), misbehaves(Subject.SERVER, how)))
    ordeal.wait_for_reason(since, said)
    behave(ordeal.rig.server, ordeal.rig.gpu)
    assert ordeal.ends_whole(job)["calls_lapsed"] == 0
    assert ordeal.rows(OTHERWISE, job) == []


@pytest.mark.fault("B14")
def test_memory_that_runs_out_in_a_call_costs_a_load_and_no_reply(ordeal: Ordeal) -> None:
    since = ordeal.epoch()
    job = ordeal.begins("B14", at(at_judged_share(0.5), misbehaves(Subject.SERVER, "out_of_memory x1")))
    ordeal.wait_for_reason(since, "server_exit")
    report = ordeal.ends_whole(job)
    assert report["calls_lapsed"] >= 1
    assert ordeal.rows("SELECT epoch FROM residencies WHERE epoch > $1 AND state = 'quarantined'", since) == []


@pytest.mark.fault("B15")
def test_what_a_stranger_takes_while_a_residency_is_open_is_recorded_as_the_strangers(ordeal: Ordeal) -> None:
    job = ordeal.begins("B15", at(at_judged_share(0.3), take(Subject.VRAM, 1000)))
    until("a sample has seen it", lambda: ordeal.rows(STRANGERS)[0]["mib"] == 1000)
    behave(ordeal.rig.server, ordeal.rig.gpu)
    ordeal.ends_whole(job)
    ordeal.seen.note("the open residency records 1000 MiB of other processes; its own peak is its loaded memory")
    peaks = ordeal.rows("SELECT DISTINCT CAST(measured -> 'peak_mib' AS int) AS mib FROM residencies ORDER BY 1")
    assert [row["mib"] for row in peaks if row["mib"] is not None] == sorted(SIZES.values())


@pytest.mark.fault("B16")
def test_memory_that_lags_is_waited_for(ordeal: Ordeal) -> None:
    since = ordeal.epoch()
    job = ordeal.begins("B16", at(at_judged_share(0.5), lag(Subject.VRAM, LAG_S)))
    ordeal.ends_whole(job)
    assert ordeal.rows("SELECT epoch FROM residencies WHERE epoch > $1 AND state = 'quarantined'", since) == []
    (flip,) = ordeal.rows(LONGEST, since)
    assert flip["seconds"] >= LAG_S
    ordeal.seen.figure("seconds of the flip", flip["seconds"])
