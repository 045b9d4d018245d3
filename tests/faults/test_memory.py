"""Memory that is not what somebody says: the device is quarantined by name, or waits, and every job comes out whole.

The stack is real, its guard measures by the code that measures a real GPU; NVML itself and Ollama are stand-ins, so a
test decides what is taken, by whom, and what is said about it.
"""

import asyncio
import json
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.doubles.gpu import Gpu
from tests.doubles.ollama_server import Ollama, by_rule
from tests.faults.gates import Session
from tests.faults.gpu import GpuBackEnd, behave, serving
from tests.faults.processes import until
from tests.faults.recording import Seen
from tests.faults.trial import JOB, Trial, measured
from tests.faults.vocabulary import Event, Scenario, Subject, at, generating, hide, judging, keep, take
from tests.faults.vocabulary import misbehave as misbehaves
from tests.running import RunningStack, running_stack

JUDGE, GENERATOR = "judge:0.5b", "generator:7b"
SIZES = {JUDGE: 1500, GENERATOR: 2500}
"""MiB, on a GPU of 4096 of which the driver has 200: either model fits, both do not."""
LAG_S = 4.0
NEWEST = "SELECT state, COALESCE(reason, '') AS reason FROM residencies ORDER BY epoch DESC LIMIT 1"
QUARANTINED = "SELECT reason FROM residencies WHERE epoch > $1 AND closed_at IS NOT NULL AND reason LIKE $2"


@dataclass(frozen=True)
class Rig:
    """A stack, its GPU, and its Ollama."""

    stack: RunningStack
    double: Ollama
    gpu: Gpu
    server: str
    whole: dict[str, int]


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One for all tests: every fault is relieved at its end."""
    folder = tmp_path_factory.mktemp("memory")
    gpu = Gpu(folder / "gpu.json", f"GPU-{uuid.uuid4()}")
    double = Ollama(sizes=SIZES, gpu=gpu, answer=unhurried)
    for tag in SIZES:
        double.pull(tag)
    with serving(double) as server:
        config = folder / "mathrag.yaml"
        config.write_text(json.dumps(configuration(gpu, server.url)))
        environment = gpu.environment() | {"MATHRAG_WORKERS__CLAIM_TTL_S": "5"}
        with running_stack(folder / "data", MATHRAG_CONFIG=str(config), **environment) as stack:
            stack.furnish(folder / "world", items=60)
            yield Rig(stack, double, gpu, server.url, measured(stack))


def configuration(gpu: Gpu, server: str) -> dict[str, object]:
    """Both models on one Ollama; memory is waited for a little longer than it lags."""
    models = {
        tag: {"driver": "ollama", "url": server, "parallel": 4, "footprint_mib": mib} for tag, mib in SIZES.items()
    }
    device = {"id": gpu.uuid, "budget_mib": 3000, "free_timeout_s": LAG_S + 1}
    return {"models": models, "roles": {"judge": JUDGE, "generate": GENERATOR}, "device": device}


def unhurried(prompt: str) -> str:
    """By rule, in some milliseconds: what happens at half of a stage must find the other half to come."""
    time.sleep(0.005)
    return by_rule(prompt)


class Ordeal(Trial):
    """A trial on this rig."""

    rig: Rig

    def begins(self, fault: str, *events: Event) -> str:
        """A job that these events happen to; its id, once they have."""
        self.seen.produced("; ".join(map(str, events)))
        job = self.stack.submit(fault, **JOB)
        back_end = GpuBackEnd(self.stack, job, self.rig.whole, self.rig.gpu, self.rig.server)
        asyncio.run(back_end.play(Scenario(fault, events)))
        return job

    def epoch(self) -> int:
        """Of the newest residency."""
        with Session(self.stack) as session:
            return int(session.rows("SELECT COALESCE(max(epoch), 0) AS epoch FROM residencies")[0]["epoch"])

    def told(self, since: int, said: str) -> str:
        """The reason, once a residency after `since` has ended for one that holds these words."""
        found: list[str] = []
        with Session(self.stack) as session:

            def ended() -> bool:
                found[:] = [row["reason"] for row in session.rows(QUARANTINED, since - 1, f"%{said}%")]
                return bool(found)

            until(f"a residency ends with {said!r}", ended)
        return found[0]


@pytest.fixture
def ordeal(rig: Rig, seen: Seen) -> Iterator[Ordeal]:
    """Whatever happens in it is over at its end."""
    made = Ordeal(rig.stack, rig.whole, seen)
    object.__setattr__(made, "rig", rig)
    yield made
    behave(rig.server, rig.gpu)


QUARANTINES = [
    ("B8", at(judging(0.5), misbehaves(Subject.SERVER, "digest")), "ollama (pid 5000"),
    ("B9", at(judging(0.5), misbehaves(Subject.SERVER, "spill")), "MiB of judge:0.5b are not on the GPU"),
    ("B10", at(judging(0.5), keep(Subject.VRAM)), "360 MiB are missing"),
    ("B11", at(judging(0.5), misbehaves(Subject.SERVER, "keep_unlisted")), "360 MiB are missing"),
    ("B12", at(judging(0.5), misbehaves(Subject.SERVER, "stranger")), "ollama stop llama3:8b"),
    ("B13", at(judging(0.5), misbehaves(Subject.SERVER, "shrink")), "has a context of 512, not 1024"),
    ("B15", at(judging(0.5), take(Subject.VRAM, 3072)), "somebody (pid 6000000) holds 3072 MiB"),
    ("B17", at(generating(0.5), hide(Subject.NVML)), "cannot be measured: NVML: Driver Not Loaded"),
    ("B18", at(judging(0.5), hide(Subject.GPU)), "cannot be measured: NVML: GPU is lost"),
]


@pytest.mark.parametrize(
    ("fault", "event", "said"), [pytest.param(*row, marks=pytest.mark.fault(row[0])) for row in QUARANTINES]
)
def test_a_device_that_is_not_as_it_should_be_is_quarantined_by_name_until_it_is(
    ordeal: Ordeal, fault: str, event: Event, said: str
) -> None:
    """Nothing is loaded over it, the reason says what is wrong, and once that is over the job ends by itself."""
    before = ordeal.epoch()
    job = ordeal.begins(fault, event)
    reason = ordeal.told(before, said)
    behave(ordeal.rig.server, ordeal.rig.gpu)
    ordeal.ends_whole(job)
    ordeal.seen.note(f"quarantined: {reason}")
