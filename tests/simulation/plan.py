"""A schedule from a seed: which jobs come, and what happens to whom at which moment."""

from dataclasses import dataclass, replace
from random import Random

from tests.simulation.pipelines import PIPELINES
from tests.simulation.points import POINTS, Fault, choose

ORDER = [point for point in POINTS.values() for _ in range(point.weight)]


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
    """One schedule. Everything that is not in here follows from the seed, too."""

    seed: int
    jobs: tuple[JobPlan, ...]
    faults: tuple[Fault, ...]
    together: bool
    """Both models fit at once."""
    outliving: bool
    """Model servers are nobody's children: they outlive the guard."""
    judges: int
    chunk: int
    """Calls claimed together."""
    apart: bool
    """Others may come between any two rows of a statement, and two jobs ask for the same calls at once."""


def plan(seed: int, points: tuple[str, ...] = ()) -> Plan:
    """The schedule of a seed; `points` restricts the faults.

    Two fault points follow from the seed's place in the order, so that a run of many seeds has each equally often.
    """
    rng = Random(seed)
    order = [POINTS[name] for name in points] or ORDER
    chosen = [order[seed % len(order)], order[(seed * 7 + seed // len(order)) % len(order)]]
    chosen += rng.choices(order, k=rng.randint(2, 4))
    if seed % 40 == 0 and not points:
        chosen = []
    jobs = [JobPlan(rng.choice(tuple(PIPELINES)), rng.choice((1, 2, 2, 3)), rng.choice((1, 1, 1, 2)))]
    if rng.random() < 0.25:
        jobs.append(JobPlan(rng.choice(tuple(PIPELINES)), rng.randint(1, 2), at_s=round(rng.uniform(0, 4), 1)))
    apart = rng.random() < 0.08
    if apart:
        jobs = [JobPlan("one-round", 3, at_s=round(n * rng.uniform(0.3, 1.5), 1)) for n in range(3)]
    return Plan(
        seed=seed,
        jobs=tuple(jobs),
        faults=tuple(choose(point, rng) for point in chosen),
        together=rng.random() < 0.15,
        outliving=rng.random() < 0.3,
        judges=2 if apart or rng.random() < 0.3 else 1,
        apart=apart,
        chunk=rng.choice((1, 2, 4)),
    )


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
