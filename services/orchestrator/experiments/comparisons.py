"""Compares the systems of an experiment, on each dataset and pooled over all of them.

A system is a variant at one point of the grid and one seed. It is compared with the baseline at the same point and
seed; without a baseline every pair is compared. Systems that are answered by the same jobs count as one.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import combinations

import msgspec

from services.orchestrator.reports.comparison import System, compare
from services.orchestrator.reports.comparison_views import Comparison
from shared.shapes import Measure
from shared.storage.database import Database
from shared.storage.experiments import Cell, Member, Standing

MOST_PAIRS = 500
"""Number of pairs above which no comparison is made: it would be unreadable, and its bootstraps take minutes."""


class Comparisons(msgspec.Struct, frozen=True, kw_only=True):
    """Comparisons of an experiment. Each is a family of its own: p-values are corrected within it."""

    pooled: Comparison
    """Comparison over all datasets, stratified by dataset."""
    datasets: dict[str, Comparison]
    """Comparison on each dataset alone; empty if there is only one."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Systems, and the pairs of their names that are compared."""

    systems: list[System]
    pairs: list[tuple[str, str]]

    def on(self, dataset: str) -> "Family":
        """Return the family restricted to one dataset."""
        systems = [System(each.name, {dataset: each.jobs[dataset]}) for each in self.systems if dataset in each.jobs]
        names = {each.name for each in systems}
        return Family(systems=systems, pairs=[pair for pair in self.pairs if names.issuperset(pair)])


async def compare_systems(
    database: Database, found: Standing, members: Mapping[int, Member], measure: Measure
) -> Comparisons | None:
    """Return the comparisons; None if there is nothing to compare, or more than `MOST_PAIRS` pairs."""
    whole = make_family(found, members)
    if not 0 < len(whole.pairs) <= MOST_PAIRS:
        return None
    names = list(dict.fromkeys(dataset for system in whole.systems for dataset in system.jobs))
    alone = names if len(names) > 1 else []
    return Comparisons(
        pooled=await _compare(database, whole, found.baseline, measure),
        datasets={name: await _compare(database, whole.on(name), found.baseline, measure) for name in alone},
    )


async def _compare(database: Database, of: Family, baseline: str | None, measure: Measure) -> Comparison:
    return await compare(database, of.systems, baseline, measure=measure, against=of.pairs)


def make_family(found: Standing, members: Mapping[int, Member]) -> Family:
    """Return the systems of an experiment whose jobs are `members`, by row id."""
    rows = {member.id: row for row, member in members.items()}
    jobs: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    labels, seeds = _label_datasets(found.grid), {cell.seed for cell in found.grid}
    for cell in found.grid:
        if cell.job is not None:
            where = _describe_point(cell, several_seeds=len(seeds) > 1)
            jobs[cell.variant, where][labels[cell.dataset, cell.corpus]] = rows[cell.job]
    alike: dict[frozenset[tuple[str, int]], str] = {}
    names = {key: alike.setdefault(frozenset(of.items()), " ".join(filter(None, key))) for key, of in jobs.items()}
    systems = {names[key]: System(names[key], of) for key, of in jobs.items()}
    if found.baseline is None:
        return Family(systems=list(systems.values()), pairs=list(combinations(systems, 2)))
    against = [
        (names[variant, where], names[found.baseline, where])
        for variant, where in jobs
        if variant != found.baseline and (found.baseline, where) in jobs
    ]
    different = dict.fromkeys(pair for pair in against if pair[0] != pair[1])
    return Family(systems=list(systems.values()), pairs=list(different))


def _label_datasets(grid: Collection[Cell]) -> dict[tuple[str, str | None], str]:
    """Name the datasets; those that are searched in several corpora are named with the corpus."""
    both = dict.fromkeys((cell.dataset, cell.corpus) for cell in grid)
    often = [dataset for dataset, _ in both]
    return {
        (dataset, corpus): dataset if often.count(dataset) == 1 else f"{dataset} in {corpus}"
        for dataset, corpus in both
    }


def _describe_point(cell: Cell, *, several_seeds: bool) -> str:
    """Describe the cell's point, such as "context_size=3 seed=1"."""
    values = {**cell.point, **({"seed": cell.seed} if several_seeds else {})}
    return " ".join(f"{path}={msgspec.json.encode(value).decode()}" for path, value in values.items())
