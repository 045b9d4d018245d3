"""The policy on a device in virtual time: nobody waits beyond the bounds, flips are few, and everything ends."""

import random
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.lease.policy import AMORTISED, MIN_OPEN_S, FlipRules
from tests.unit.timed_device import LOOK_S, TimedDevice, Work
from tests.unit.workloads import GENERATOR, JUDGE

BOUNDLESS = FlipRules()
BOUNDED = FlipRules(max_wait_s=60.0, max_residency_s=120.0, online_patience_s=10.0)

ask = st.lists(st.sampled_from([JUDGE, GENERATOR]), min_size=1, max_size=4)
asks = st.lists(st.sampled_from([JUDGE, GENERATOR, 3, 4]), min_size=1, max_size=5)
moments = st.integers(0, 300).map(float)
slow = st.fixed_dictionaries({model: st.sampled_from([0.5, 2.0, 6.0]) for model in (JUDGE, GENERATOR, 3, 4)})


def jobs(sample: st.SearchStrategy[list[int]], *, online: bool = False) -> st.SearchStrategy[list[Work]]:
    samples = st.lists(sample, min_size=1, max_size=1 if online else 4)
    return st.lists(st.builds(Work, at=moments, samples=samples, online=st.just(online)), min_size=1, max_size=5)


def stream(models: list[int], every_s: float, count: int, samples: int = 1) -> list[Work]:
    return [Work(at=n * every_s, samples=[models] * samples) for n in range(count)]


def starvation_s(load_s: dict[int, float], rules: FlipRules, others: int, call_s: float = 1.0) -> float:
    """The longest that a job may starve: the bound, and for every other model its least residency, a flip, and the call
    that is under way."""
    longest = max(load_s.values())
    return rules.max_wait_s + others * (max(MIN_OPEN_S, AMORTISED * longest) + longest + call_s + LOOK_S)


@given(work=jobs(asks), asked=jobs(asks, online=True), load_s=slow, measured=st.booleans())
def test_with_any_number_of_models_every_call_is_served_in_the_end(
    work: list[Work], asked: list[Work], load_s: dict[int, float], *, measured: bool
) -> None:
    for rules in (BOUNDLESS, BOUNDED, FlipRules(max_wait_s=0.1, max_residency_s=0.1, online_patience_s=0.0)):
        device = TimedDevice(work + asked, rules, load_s, measured=measured).run()
        assert len(device.served) == sum(len(sample) for job in work + asked for sample in job.samples)


@given(work=jobs(asks), load_s=slow)
def test_no_job_starves_beyond_the_bound(work: list[Work], load_s: dict[int, float]) -> None:
    endless = stream([JUDGE], every_s=1.0, count=400)
    device = TimedDevice(work + endless, BOUNDED, load_s).run()
    assert max(device.starved.values(), default=0.0) <= starvation_s(load_s, BOUNDED, others=3)


def test_without_bounds_a_stream_of_judge_work_starves_the_generator() -> None:
    endless = stream([JUDGE], every_s=1.0, count=600)
    waiting = Work(at=5.0, samples=[[GENERATOR]])
    load_s = {JUDGE: 2.0, GENERATOR: 6.0}
    assert TimedDevice([*endless, waiting], BOUNDLESS, load_s).run().starved[600] > 550
    bounded = TimedDevice([*endless, waiting], BOUNDED, load_s).run()
    assert bounded.starved[600] <= starvation_s(load_s, BOUNDED, others=1)
    assert [flip.cause for flip in bounded.flips] == ["first", "aged", "drained"]


def test_a_residency_that_is_old_gives_way_at_once() -> None:
    endless = stream([JUDGE], every_s=1.0, count=600)
    waiting = Work(at=300.0, samples=[[GENERATOR]])
    device = TimedDevice([*endless, waiting], BOUNDED, {JUDGE: 2.0, GENERATOR: 6.0}).run()
    assert [flip.cause for flip in device.flips] == ["first", "bounded", "drained"]
    assert device.starved.get(600, 0.0) <= 2.0


@given(load_s=slow, every_s=st.sampled_from([0.5, 1.0, 2.0]), tight=st.sampled_from([0.1, 5.0, 60.0]))
def test_where_both_sides_always_have_work_flips_take_little_of_the_time(
    load_s: dict[int, float], every_s: float, tight: float
) -> None:
    both = stream([JUDGE], every_s, count=60) + stream([GENERATOR], every_s, count=60)
    rules = FlipRules(max_wait_s=tight, max_residency_s=tight)
    device = TimedDevice(both, rules, load_s).run()
    for before, flip in pairwise(device.flips):
        if flip.cause in ("aged", "bounded"):
            assert flip.before_open_s >= max(MIN_OPEN_S, AMORTISED * before.took_s)


@given(samples=st.lists(ask, min_size=1, max_size=8), load_s=slow)
def test_bounds_cost_a_job_that_is_alone_nothing(samples: list[list[int]], load_s: dict[int, float]) -> None:
    alone = [Work(at=0.0, samples=samples * 8)]
    tight = FlipRules(max_wait_s=0.1, max_residency_s=0.1, online_patience_s=0.0)
    bounded, boundless = (TimedDevice(alone, rules, load_s).run() for rules in (tight, BOUNDLESS))
    assert [flip.models for flip in bounded.flips] == [flip.models for flip in boundless.flips]
    assert bounded.idle_s == 0.0


@given(work=jobs(ask), asked=st.builds(Work, at=moments, samples=st.tuples(ask), online=st.just(True)), load_s=slow)
@example(
    work=[Work(at=0.0, samples=[[JUDGE]] * 200)],
    asked=Work(at=20.0, samples=[[GENERATOR]], online=True),
    load_s={JUDGE: 2.0, GENERATOR: 6.0, 3: 2.0, 4: 2.0},
)
def test_somebody_online_is_served_within_his_patience_one_flip_and_one_call(
    work: list[Work], asked: Work, load_s: dict[int, float]
) -> None:
    device = TimedDevice([*work, asked], BOUNDED, load_s).run()
    longest = max(load_s.values())
    patience = max(BOUNDED.online_patience_s, 2 * longest)
    assert max(wait for wait, online in device.served if online) <= patience + longest + 1.0 + LOOK_S


def test_an_answer_costs_the_batch_two_loads() -> None:
    work = [Work(at=0.0, samples=[[JUDGE]] * 100), Work(at=20.0, samples=[[GENERATOR]], online=True)]
    device = TimedDevice(work, BOUNDED, {JUDGE: 2.0, GENERATOR: 6.0}).run()
    assert [(flip.models, flip.cause) for flip in device.flips] == [
        ((JUDGE,), "first"),
        ((GENERATOR,), "online"),
        ((JUDGE,), "drained"),
    ]


# The pipelines of the reference's table, as sequences of models.


def papers(_: random.Random) -> list[int]:
    return [JUDGE, GENERATOR]


def corrective(chance: random.Random) -> list[int]:
    return [JUDGE, GENERATOR] + ([JUDGE, GENERATOR] if chance.random() < 0.3 else [])


def reflective(chance: random.Random) -> list[int]:
    rounds = 1
    while rounds < 6 and chance.random() < 0.5:
        rounds += 1
    return [JUDGE, *[GENERATOR, JUDGE] * rounds]


@pytest.mark.parametrize(("pipeline", "loads"), [(papers, 2), (corrective, 4), (reflective, 13)])
def test_loads_follow_the_rounds_of_a_pipeline_not_its_samples(pipeline: object, loads: int) -> None:
    chance = random.Random(7)  # noqa: S311 - reproducible, not secret
    samples = [pipeline(chance) for _ in range(100)]  # type: ignore[operator]
    device = TimedDevice([Work(at=0.0, samples=samples)], BOUNDED, {JUDGE: 2.0, GENERATOR: 6.0}).run()
    alternations = max(sum(a != b for a, b in pairwise(sample)) for sample in samples)
    assert len(device.flips) == loads == 1 + alternations


def test_sixteen_merged_jobs_take_the_loads_of_one() -> None:
    chance = random.Random(7)  # noqa: S311
    alike = [Work(at=0.0, samples=[reflective(chance) for _ in range(20)]) for _ in range(16)]
    load_s = {JUDGE: 2.0, GENERATOR: 6.0}
    merged = len(TimedDevice(alike, BOUNDLESS, load_s).run().flips)
    apart = sum(len(TimedDevice([job], BOUNDLESS, load_s).run().flips) for job in alike)
    assert merged == 13
    assert apart > 10 * merged
