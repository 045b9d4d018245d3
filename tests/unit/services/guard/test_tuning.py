"""How a model's speed is measured by its slots: which servers are started, how many calls run, and what is refused."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from services.guard import ownership
from services.guard.drivers.ports import Driver, DriverError
from services.guard.tuning import measure
from shared.calls import Decoding, ModelAnswer, Prompt
from shared.models.chat import ChatFailed
from shared.models.tuning import SIZES, WINDOWS, Line, Measurement, Problem, SampleCall, Skipped, Workload
from shared.replies import FailureKind
from shared.runtime.pins import ModelIdentity
from shared.settings import Device, Model, Settings
from shared.shapes import Architecture

pytestmark = pytest.mark.anyio
GREEDY = Decoding()
WORKLOAD = Workload(
    calls=(SampleCall(prompt="one", decoding=GREEDY), SampleCall(prompt="two", decoding=GREEDY)), window_s=0.001
)
ARCHITECTURE = Architecture(
    weights_bytes=10 << 20, layers=1, heads=8, kv_heads=8, head_dim=64, embedding=512, vocabulary=1,
    trained_context=1024, name="made-up",
)  # fmt: skip
"""A token takes 2 x 8 x 64 x 2 bytes of cache, so a slot of 1,024 tokens takes 2 MiB."""


class Double(Driver):
    """A driver whose servers answer after a moment, and which notes what was asked of it."""

    def __init__(self, architecture: Architecture | None = None) -> None:
        self.started: list[int | None] = []
        self.up = 0
        self.running = 0
        self.most: dict[int, int] = {}
        """The most calls that ran at once, by the number of servers started before."""
        self.fails_from: int | None = None
        self.answers = True
        self._architecture = architecture

    async def identify(self) -> ModelIdentity:
        return ModelIdentity(name="m", backend="made-up", digest="d", version="1", options={}, device="cpu:0")

    async def architecture(self) -> Architecture | None:
        return self._architecture

    async def start(self, parallel: int | None = None) -> Any:
        if self.fails_from is not None and (parallel or 0) >= self.fails_from:
            raise DriverError("out of memory")
        self.started.append(parallel)
        self.up += 1
        return self

    async def complete(
        self, prompt: Prompt, decoding: Decoding, seed: int, logprobs: int = 0, choices: Sequence[str] = ()
    ) -> ModelAnswer:
        if not self.answers:
            raise ChatFailed(FailureKind.CONTEXT_EXCEEDED, "too long")
        self.running += 1
        starts = len(self.started)
        self.most[starts] = max(self.most.get(starts, 0), self.running)
        try:
            await asyncio.sleep(0)
        finally:
            self.running -= 1
        return ModelAnswer(text="4")

    async def stop(self) -> None:
        self.up -= 1


def settings_of(folder: Path, model: Model, budget_mib: int = 1000) -> Settings:
    roles = {"judge": "m", "generate": "m"}
    return Settings(data_dir=folder, models={"m": model}, roles=roles, device=Device(budget_mib=budget_mib))


async def lines_of(double: Double, settings: Settings) -> list[Line]:
    return [line async for line in measure(lambda: double, settings, "m", WORKLOAD)]


EMBEDDED = Model(driver="process", path=Path("m.gguf"), context=1024)
OLLAMA = Model(driver="ollama", context=1024)


async def test_llama_cpp_is_started_with_each_number_of_slots_and_has_as_many_calls(tmp_path: Path) -> None:
    double = Double()
    found = await lines_of(double, settings_of(tmp_path, EMBEDDED))
    sizes = SIZES[: len(double.started)]
    assert tuple(double.started) == sizes
    assert [double.most[number] for number in range(1, len(sizes) + 1)] == list(sizes)
    assert [line.slots for line in found if isinstance(line, Measurement)] == list(sizes)
    assert all(
        isinstance(line, Measurement) and len(line.windows) == WINDOWS and min(line.windows) > 0 for line in found
    )
    assert (double.up, double.running) == (0, 0)


@pytest.mark.parametrize("model", [OLLAMA, Model(driver="process", server="vllm", path=Path("m"), context=1024)])
async def test_other_servers_are_started_once_with_the_most_slots(tmp_path: Path, model: Model) -> None:
    double = Double()
    await lines_of(double, settings_of(tmp_path, model))
    assert (double.started, double.up) == ([SIZES[-1]], 0)


async def test_slots_that_the_budget_has_no_room_for_are_not_measured(tmp_path: Path) -> None:
    # Weights 10 MiB, 8 slots 16 MiB, activations 1 MiB, rounded up and 5 % more: 29.4 MiB; a slot takes 2.1 of them.
    double = Double(ARCHITECTURE)
    first, second, last = await lines_of(double, settings_of(tmp_path, EMBEDDED, budget_mib=17))
    assert isinstance(first, Measurement)
    assert isinstance(second, Measurement)
    assert (first.mib, second.mib) == (15, 17)
    assert last == Skipped(slots=4, reason="they need 21 MiB; `budget_mib` leaves 17 MiB for models")


async def test_a_model_that_does_not_fit_with_one_slot_is_still_tried(tmp_path: Path) -> None:
    double = Double(ARCHITECTURE)
    await lines_of(double, settings_of(tmp_path, EMBEDDED, budget_mib=5))
    assert double.started == [1]


async def test_a_server_that_does_not_start_with_more_slots_limits_them(tmp_path: Path) -> None:
    double = Double()
    double.fails_from = 2
    first, last = await lines_of(double, settings_of(tmp_path, EMBEDDED))
    assert isinstance(first, Measurement)
    assert last == Skipped(slots=2, reason="out of memory")


async def test_a_server_that_does_not_start_at_all_is_the_result(tmp_path: Path) -> None:
    double = Double()
    double.fails_from = 1
    assert await lines_of(double, settings_of(tmp_path, EMBEDDED)) == [
        Problem(kind="unavailable", message="out of memory")
    ]


async def test_a_call_that_fails_is_the_result_and_the_server_is_stopped(tmp_path: Path) -> None:
    double = Double()
    double.answers = False
    (line,) = await lines_of(double, settings_of(tmp_path, EMBEDDED))
    assert line == Problem(kind="unavailable", message="context_exceeded: too long")
    assert double.up == 0


async def test_beside_a_guard_nothing_is_started_and_the_message_names_the_command(tmp_path: Path) -> None:
    double, settings = Double(), settings_of(tmp_path, EMBEDDED)
    with ownership.own_on_host(settings):
        (line,) = await lines_of(double, settings)
    assert isinstance(line, Problem)
    assert (line.kind, double.started) == ("conflict", [])
    assert "mathrag down" in line.hint


async def test_without_the_database_that_the_settings_name_nothing_is_started(tmp_path: Path) -> None:
    double, settings = Double(), settings_of(tmp_path, EMBEDDED)
    away = settings.model_copy(update={"database_url": "postgresql+asyncpg://mathrag@127.0.0.1:1/mathrag"})
    (line,) = await lines_of(double, away)
    assert isinstance(line, Problem)
    assert (line.kind, double.started) == ("unavailable", [])
    assert "PostgreSQL" in line.message


async def test_a_remote_model_is_measured_beside_a_guard(tmp_path: Path) -> None:
    double, settings = Double(), settings_of(tmp_path, Model(driver="remote", url="http://127.0.0.1:9/v1"))
    with ownership.own_on_host(settings):
        first, *_ = await lines_of(double, settings)
    assert isinstance(first, Measurement)
    assert first.mib is None
