"""What the orchestrator does over and over, and what it knows of the calls and flips to come."""

import asyncio
import contextlib
from typing import Any, cast

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.check import NotReady
from services.orchestrator.deps import Deps
from services.orchestrator.probes import SILENT_S, check_schedulers
from services.orchestrator.scheduling import routines, scheduler
from services.orchestrator.scheduling.demands import Needs, count_dry, estimate_new
from services.orchestrator.scheduling.routines import OUTAGE_S, Routine
from services.orchestrator.scheduling.scheduler import (
    BUSY_LOOK_S,
    COUNTED_S,
    LONGEST_PAUSE_S,
    LOOK_S,
    QueueCounts,
    Scheduler,
    estimate_busy_s,
    predict_next_flip,
)
from services.orchestrator.scheduling.whatif import ModelWanted, make_demands
from shared.calls import Lane
from shared.lease.memory import Hardware
from shared.lease.plan import Plan, Room, plan
from shared.lease.policy import DeviceResidency, ModelLoad, WorkloadSnapshot
from shared.params import GateParams, GradingParams, HydeParams, Params, RerankParams
from shared.pipelines.binding import Binding, Pin
from shared.runtime.advance import JobSpec
from shared.samples import GateDecision, Strategy
from shared.settings import Settings
from shared.storage.database import Database
from shared.storage.jobs import LaneWork

pytestmark = pytest.mark.anyio


# The pace of what the orchestrator does over and over: no outage makes a later pause longer.


class Hands:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    moved = Hands()
    for module in (scheduler, routines, scheduler):
        monkeypatch.setattr(module, "time", moved)
    return moved


@pytest.fixture
def looking(hands: Hands) -> Scheduler:
    settings = Settings(database_url="unused", redis_url="redis://nowhere")
    database = Database("postgresql+asyncpg://nowhere", pinned=True)
    return Scheduler(settings, database, Redis.from_url(settings.redis_url))


@pytest.mark.parametrize(
    ("took_s", "busy_s", "pause_s"),
    [
        (0.001, 0.0, LOOK_S),
        (0.3, 0.0, 0.3),
        (8.0, 0.0, LONGEST_PAUSE_S),
        (0.001, None, LONGEST_PAUSE_S),
        (0.001, 0.4, 0.2),
        (0.3, 0.4, 0.3),
        (0.001, 600.0, BUSY_LOOK_S),
    ],
)
async def test_the_pause_after_a_look_has_an_upper_bound(
    looking: Scheduler,
    hands: Hands,
    monkeypatch: pytest.MonkeyPatch,
    took_s: float,
    busy_s: float | None,
    pause_s: float,
) -> None:
    async def look() -> float | None:
        hands.now += took_s
        return busy_s

    monkeypatch.setattr(looking, "look", look)
    assert await looking.run_once() == pytest.approx(pause_s)


JUDGE = ModelLoad(model_id=1, footprint_mib=100, lane=Lane.JUDGE, calls=30, call_s=0.1)
GENERATOR = ModelLoad(model_id=2, footprint_mib=100, lane=Lane.GENERATE, calls=7, call_s=2.0)
HELD = DeviceResidency(epoch=3, models=(1,), state="open")


@pytest.mark.parametrize(
    ("loads", "held", "busy_s"),
    [
        ((JUDGE, GENERATOR), HELD, 3.0),
        ((JUDGE,), None, 0.0),
        ((JUDGE,), replace(HELD, state="loading"), 0.0),
        ((GENERATOR,), HELD, 0.0),
        ((replace(JUDGE, call_s=None),), HELD, 0.0),
        ((JUDGE, replace(GENERATOR, online_s=0.2)), HELD, 0.0),
        ((JUDGE, replace(GENERATOR, starved_s=0.2)), HELD, 0.0),
    ],
)
def test_the_scheduler_pauses_while_the_resident_models_have_calls_and_nobody_presses(
    loads: tuple[ModelLoad, ...], held: DeviceResidency | None, busy_s: float
) -> None:
    snapshot = WorkloadSnapshot(loads=loads, ready=False, cpu_calls=0, cpu_idle_s=0.0)
    assert estimate_busy_s(snapshot, held) == pytest.approx(busy_s)


class Failing(Routine):
    def __init__(self, failures: int) -> None:
        super().__init__()
        self.failures = failures
        self.pauses: list[float] = []

    async def run_once(self) -> float:
        if self.failures:
            self.failures -= 1
            raise ConnectionError("the database is away")
        return 7.0

    async def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if seconds != OUTAGE_S:
            raise asyncio.CancelledError


async def test_the_pause_after_a_failure_does_not_grow(hands: Hands) -> None:
    tried = Failing(100)
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(tried.run())  # An earlier test may have left ours cancelled.
    assert tried.pauses == [*[OUTAGE_S] * 100, 7.0]


class Swallowing(Routine):
    def __init__(self) -> None:
        super().__init__()
        self.started = asyncio.Event()
        self.runs = 0

    async def run_once(self) -> float:
        self.runs += 1
        self.started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return 0.0


async def test_a_cancellation_that_a_library_swallows_ends_the_loop() -> None:
    routine_ = Swallowing()
    running = asyncio.create_task(routine_.run())
    await routine_.started.wait()
    running.cancel()
    await asyncio.wait([running], timeout=60)
    assert running.cancelled()
    assert routine_.runs == 1


async def test_only_what_was_completed_counts_as_a_look(hands: Hands) -> None:
    tried = Failing(3)
    hands.now += 20.0
    assert tried.silent_s == 20.0
    with pytest.raises(asyncio.CancelledError):
        await asyncio.create_task(tried.run())  # An earlier test may have left ours cancelled.
    assert tried.silent_s == 0.0


async def test_readiness_says_how_long_ago_a_scheduler_has_looked(looking: Scheduler, hands: Hands) -> None:
    deps = Deps(
        settings=cast("Any", None), database=cast("Any", None), admission=cast("Any", None), redis=cast("Any", None),
        http=cast("Any", None), wake=lambda: None, schedulers=[looking],
    )  # fmt: skip
    hands.now += SILENT_S
    assert await check_schedulers(deps) == ""
    hands.now += 31.0
    with pytest.raises(NotReady, match=r"the scheduler has not read the queue of cpu:0 for 41 s"):
        await check_schedulers(deps)


class Counted:
    def __init__(self, hands: Hands, takes_s: float) -> None:
        self._hands = hands
        self._takes_s = takes_s
        self.asked = 0

    async def execute(self, _statement: object) -> "Counted":
        self._hands.now += self._takes_s
        self.asked += 1
        return self

    def all(self) -> list[Any]:
        return []


@pytest.mark.parametrize(("takes_s", "used_s"), [(0.1, 1.0), (8.0, COUNTED_S)])
async def test_a_long_queue_is_counted_for_a_tenth_of_the_time(hands: Hands, takes_s: float, used_s: float) -> None:
    counts, counted = QueueCounts(), Counted(hands, takes_s)
    connection = cast("AsyncConnection", counted)
    await counts.read(connection, [])
    hands.now += 0.9 * used_s
    await counts.read(connection, [])
    assert counted.asked == 1
    hands.now += 0.2 * used_s
    await counts.read(connection, [])
    assert counted.asked == 2


async def test_a_model_whose_calls_have_just_come_is_counted_at_once(hands: Hands) -> None:
    counts, counted = QueueCounts(), Counted(hands, 0.1)
    connection = cast("AsyncConnection", counted)
    await counts.read(connection, [])
    assert await counts.read(connection, [(7, "judge")]) == {(7, "judge"): 1}
    assert counted.asked == 2


# Which calls a job will make, from a dry run: counts by model, and the order in which they are needed.

JUDGE, GENERATOR, DENSE, SPARSE, GRADER, RERANKER = range(1, 7)
PINS = {
    role: Pin(model_id=model, hash=f"{model:064x}")
    for role, model in (
        ("judge", JUDGE), ("generate", GENERATOR), ("dense", DENSE), ("sparse", SPARSE), ("grade", GRADER),
    )
}  # fmt: skip


def job(pipeline: str, pins: dict[str, Pin] = PINS, **params: Any) -> JobSpec:
    chosen = Params(candidates=4, **params)
    return JobSpec(
        id=1, pipeline=pipeline, dataset_id=1, params=chosen, prepared=None,
        binding=Binding(pins=pins, params=chosen),
    )  # fmt: skip


def calls(found: Needs) -> dict[int, int]:
    return {model: wanted.calls for model, wanted in found.wanted.items()}


def test_a_baseline_asks_the_generator_alone() -> None:
    found = estimate_new(job("closed-book"), 7)
    assert (calls(found), found.order) == ({GENERATOR: 7}, (GENERATOR,))
    assert found.wanted[GENERATOR].lane is Lane.GENERATE
    assert found.wanted[GENERATOR].tokens == Params().generate.max_tokens


def test_hypothetical_documents_are_the_judges() -> None:
    found = estimate_new(job("hyde", hyde=HydeParams(documents=3)), 10)
    assert (calls(found)[JUDGE], calls(found)[GENERATOR]) == (30, 10)
    assert [model for model in found.order if model in (JUDGE, GENERATOR)] == [JUDGE, GENERATOR]


def test_a_critic_that_is_never_content_reads_a_page_at_every_attempt() -> None:
    found = estimate_new(job("critic-loop"), 10)
    assert (calls(found)[JUDGE], calls(found)[GENERATOR]) == (10 * 3 * 3, 10)
    assert found.order[-1] == GENERATOR


@pytest.mark.parametrize("refuse", [False, True])
def test_a_question_may_be_asked_in_many_wordings_and_is_answered_all_the_same(refuse: bool) -> None:
    pins = {**PINS, "rerank": Pin(model_id=RERANKER, hash=f"{RERANKER:064x}")}
    found = estimate_new(job("enhanced", pins, rerank=RerankParams(refuse=refuse)), 10)
    assert calls(found) == {JUDGE: 20, DENSE: 50, SPARSE: 50, RERANKER: 10, GENERATOR: 10}
    assert found.order[-1] == GENERATOR


def test_a_rubric_needs_the_judge_again_after_the_generator() -> None:
    plain, rated = (
        estimate_new(job("mathrag-gate", grading=GradingParams(grader=name)), 10) for name in ("", "rubric")
    )
    assert calls(rated)[JUDGE] == calls(plain)[JUDGE] + 10
    assert [model for model in rated.order if model in (JUDGE, GENERATOR)][-2:] == [GENERATOR, JUDGE]
    assert rated.wanted[JUDGE].tokens == GradingParams().decoding.max_tokens


def test_self_rag_asks_the_generator_once_and_for_every_passage() -> None:
    found = estimate_new(job("self-rag"), 10)
    assert (JUDGE in calls(found), calls(found)[GENERATOR]) == (False, 10 * (1 + 4))


def test_the_gate_asks_its_judge_first() -> None:
    found = estimate_new(job("mathrag-gate", gate=GateParams(items=3)), 10)
    judged = count_dry(job("mathrag-gate"))
    calibration = sum(n for counted in judged.calibration for (model, _), n in counted.items() if model == JUDGE)
    candidates = sum(n for counted in judged.sample for (model, _), n in counted.items() if model == JUDGE)
    assert calibration > 0
    assert candidates > 1
    assert calls(found)[JUDGE] == 3 * calibration + 10 * candidates
    assert calls(found)[GENERATOR] == 10
    assert [model for model in found.order if model in (JUDGE, GENERATOR)][-1] == GENERATOR
    assert found.wanted[JUDGE].tokens == Params().judge.max_tokens


@pytest.mark.parametrize(("strategy", "asked"), [(Strategy.RULES, False), (Strategy.JUDGE, True)])
def test_a_gate_that_was_decided_is_believed(strategy: Strategy, asked: bool) -> None:
    decided = GateDecision(
        strategy=strategy, reason="", tau=0.45, rho=0.9, low=0.8, high=1.0, spearman=0.9, documents=(),
        rule_scores=(), judge_scores=(), asked=0, unparsed=0,
    )  # fmt: skip
    found = estimate_new(replace(job("mathrag-gate"), prepared=decided), 10)
    assert (JUDGE in found.wanted) == asked


def test_one_model_in_both_roles_is_one_model() -> None:
    one = {**PINS, "judge": PINS["generate"]}
    found = estimate_new(job("mathrag-gate", one), 10)
    two = estimate_new(job("mathrag-gate"), 10)
    assert calls(found)[GENERATOR] == calls(two)[GENERATOR] + calls(two)[JUDGE]
    assert found.wanted[GENERATOR].lane is Lane.JUDGE
    assert found.wanted[GENERATOR].tokens == Params().generate.max_tokens


# What a device's next flip waits for.


def lane(model: str, queued: int = 0, ended: int = 0, device: str | None = "cpu:0") -> LaneWork:
    return LaneWork(lane=Lane.JUDGE, model=model, device=device, queued=queued, ended=ended)


def test_no_flip_is_due_while_no_call_waits_for_another_model() -> None:
    work = [lane("a", 10), lane("b", 5, device="cuda:1"), lane("dense", 3, device=None)]
    assert predict_next_flip("cpu:0", ["a"], work) is None
    assert predict_next_flip("cpu:0", [], []) is None


def test_what_is_resident_is_answered_first() -> None:
    flip = predict_next_flip("cpu:0", ["a"], [lane("a", 42), lane("b", 5), lane("c", 7), lane("d", 0, ended=9)])
    assert flip is not None
    assert (flip.models, flip.waiting, flip.left) == (["c", "b"], 12, 42)


def test_the_time_left_is_as_sure_as_the_pace() -> None:
    flip = predict_next_flip("cpu:0", ["a"], [lane("a", 60, ended=30), lane("b", 1)])
    assert flip is not None
    assert flip.low_s == pytest.approx(60 * 30 / 42.83, rel=1e-3)
    assert flip.high_s == pytest.approx(60 * 30 / 20.24, rel=1e-3)


@pytest.mark.parametrize(("left", "ended"), [(60, 4), (60, 0), (0, 100)])
def test_no_time_is_said_where_too_few_calls_ended_or_none_are_left(left: int, ended: int) -> None:
    flip = predict_next_flip("cpu:0", ["a"], [lane("a", left, ended=ended), lane("b", 1)])
    assert flip is not None
    assert (flip.low_s, flip.high_s) == (None, None)


# Plans of models that are not there: what a request's own figures come to.

ROOM = Room(device="gpu:0", budget_mib=11_700)
LARGE, SMALL = "qwen2.5-7b", "qwen2.5-0.5b"


def planned(*models: ModelWanted) -> Plan:
    return plan(make_demands(list(models), Hardware(), on_gpu=True), [ROOM])


def test_one_model_in_both_roles_is_loaded_once() -> None:
    generate = ModelWanted(role="generate", preset=LARGE, calls=500)
    judge = ModelWanted(role="judge", preset=LARGE, calls=5000)
    (both,) = make_demands([generate, judge], Hardware(), on_gpu=True)
    (alone,) = make_demands([generate], Hardware(), on_gpu=True)
    assert (both.calls, both.lane, both.call_s, both.load_s) == (5500, Lane.JUDGE, alone.call_s, alone.load_s)
    chosen = planned(judge, generate).chosen
    assert chosen is not None
    assert (chosen.loads, chosen.flips, [len(each.models) for each in chosen.residencies]) == (1, 0, [1])


def test_two_models_and_two_settings_of_one_model_are_two_loads() -> None:
    judge = ModelWanted(role="judge", preset=LARGE)
    for generate in (ModelWanted(role="generate", preset=SMALL), ModelWanted(role="generate", preset=LARGE, kv="q8_0")):
        chosen = planned(judge, generate).chosen
        assert chosen is not None
        assert chosen.loads == 2
