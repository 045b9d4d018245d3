"""A schedule from a seed: which jobs come, and what happens to whom at which moment."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from tests.simulation.pipelines import PIPELINES
from tests.simulation.points import POINTS, Fault, Point, choose

ORDER = tuple(POINTS.values())
CROWDED = 10
"""One of this many schedules has no faults, and several judges answer the calls of the same samples."""


@dataclass(frozen=True)
class JobPlan:
    """One job."""

    pipeline: str
    items: int
    repeats: int = 1
    at_s: float = 0.0
    poisonous: bool = False


@dataclass(frozen=True)
class Plan:
    """One schedule. All other values also follow from the seed."""

    seed: int
    jobs: tuple[JobPlan, ...]
    faults: tuple[Fault, ...]
    together: bool
    """Both models fit at once."""
    outliving: bool
    """Model servers have no parent process, so they outlive the guard."""
    judges: int
    chunk: int
    """Calls claimed together."""
    apart: bool
    """Others may come between any two rows of a statement, and two jobs ask for the same calls at once."""
    crowded: bool
    """Answers to the calls of one sample are committed at the same time, again and again."""


def plan(seed: int, points: tuple[str, ...] = ()) -> Plan:
    """The schedule of a seed; `points` restricts the faults, and changes nothing else."""
    rng = Random(seed)
    crowded = seed % CROWDED == 0 and not points
    apart = not crowded and rng.random() < 0.08
    return Plan(
        seed=seed,
        jobs=_together(rng) if apart else _apart(rng, crowded=crowded),
        faults=() if crowded else _faults(seed, [POINTS[name] for name in points] or ORDER),
        together=rng.random() < 0.15,
        outliving=rng.random() < 0.3,
        judges=3 if crowded else 2 if apart or rng.random() < 0.3 else 1,
        apart=apart,
        crowded=crowded,
        chunk=1 if crowded else rng.choice((1, 2, 4)),
    )


def _faults(seed: int, order: Sequence[Point]) -> tuple[Fault, ...]:
    """Two follow from the seed's place in the order, so that a run of many seeds has each equally often."""
    rng = Random(f"faults of {seed}")
    chosen = [order[seed % len(order)], order[(seed * 7 + seed // len(order)) % len(order)]]
    chosen += rng.choices(order, k=rng.randint(3, 4))
    return tuple(choose(point, rng) for point in chosen)


def _together(rng: Random) -> tuple[JobPlan, ...]:
    return tuple(JobPlan("one-round", 3, at_s=round(n * rng.uniform(0.3, 1.5), 1)) for n in range(3))


def _apart(rng: Random, *, crowded: bool) -> tuple[JobPlan, ...]:
    items = 3 if crowded else rng.choice((1, 1, 1, 2, 3))
    jobs = [JobPlan(rng.choice(tuple(PIPELINES)), items, rng.choice((1, 1, 1, 1, 2)))]
    if rng.random() < 0.2:
        jobs.append(JobPlan(rng.choice(tuple(PIPELINES)), rng.randint(1, 2), at_s=round(rng.uniform(0, 4), 1)))
    return tuple(jobs)


def smaller(whole: Plan) -> list[Plan]:
    """Plans with less in them: one fault fewer, one job fewer, one sample fewer."""
    fewer = [replace(whole, faults=whole.faults[:n] + whole.faults[n + 1 :]) for n in range(len(whole.faults))]
    if len(whole.jobs) > 1:
        fewer += [replace(whole, jobs=whole.jobs[:n] + whole.jobs[n + 1 :]) for n in range(len(whole.jobs))]
    for n, job in enumerate(whole.jobs):
        less = [replace(job, items=job.items - 1)] if job.items > 1 else []
        less += [replace(job, repeats=1)] if job.repeats > 1 else []
        fewer += [replace(whole, jobs=(*whole.jobs[:n], smaller_job, *whole.jobs[n + 1 :])) for smaller_job in less]
    return fewer
