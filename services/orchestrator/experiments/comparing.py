"""What differs between the systems of an experiment: on each dataset, and pooled over all of them.

A system is a variant at a point of the grid and a seed. It is compared with the baseline at the same point and seed;
where there is no baseline, each is compared with each. Systems that the same jobs answer are one.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from itertools import combinations

import msgspec

from services.orchestrator.reports.compared import Comparison
from services.orchestrator.reports.comparison import System, compare
from shared.contracts.measures import Measure
from shared.storage.database import Database
from shared.storage.experiments import Cell, Member, Standing

MOST_PAIRS = 500
"""More comparisons than this tell nobody anything, and their bootstraps take minutes."""


class Comparisons(msgspec.Struct, frozen=True, kw_only=True):
    """Each is a family of its own: p-values are corrected within it."""

    pooled: Comparison
    """Over all datasets, stratified by dataset."""
    datasets: dict[str, Comparison]
    """On each dataset alone; empty where there is only one."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Systems, and which of them are compared, by name."""

    systems: list[System]
    pairs: list[tuple[str, str]]

    def on(self, dataset: str) -> "Family":
        """The same on one dataset alone."""
        systems = [System(each.name, {dataset: each.jobs[dataset]}) for each in self.systems if dataset in each.jobs]
        names = {each.name for each in systems}
        return Family(systems=systems, pairs=[pair for pair in self.pairs if names.issuperset(pair)])


async def comparisons(
    database: Database, found: Standing, members: Mapping[int, Member], measure: Measure
) -> Comparisons | None:
    """None: there is nothing to compare, or too much (`MOST_PAIRS`)."""
    whole = family(found, members)
    if not 0 < len(whole.pairs) <= MOST_PAIRS:
        return None
    names = list(dict.fromkeys(dataset for system in whole.systems for dataset in system.jobs))
    alone = names if len(names) > 1 else []
    return Comparisons(
        pooled=await _compared(database, whole, found.baseline, measure),
        datasets={name: await _compared(database, whole.on(name), found.baseline, measure) for name in alone},
    )


async def _compared(database: Database, of: Family, baseline: str | None, measure: Measure) -> Comparison:
    return await compare(database, of.systems, baseline, measure=measure, against=of.pairs)


def family(found: Standing, members: Mapping[int, Member]) -> Family:
    """The systems of an experiment whose jobs are `members`, by row id."""
    rows = {member.id: row for row, member in members.items()}
    jobs: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(dict)
    labels, seeds = _labels(found.grid), {cell.seed for cell in found.grid}
    for cell in found.grid:
        if cell.job is not None:
            where = _where(cell, several_seeds=len(seeds) > 1)
            jobs[cell.variant, where][labels[cell.dataset, cell.corpus]] = rows[cell.job]
    alike: dict[frozenset[tuple[str, int]], str] = {}
    named = {key: alike.setdefault(frozenset(of.items()), " ".join(filter(None, key))) for key, of in jobs.items()}
    systems = {named[key]: System(named[key], of) for key, of in jobs.items()}
    if found.baseline is None:
        return Family(systems=list(systems.values()), pairs=list(combinations(systems, 2)))
    against = [
        (named[variant, where], named[found.baseline, where])
        for variant, where in jobs
        if variant != found.baseline and (found.baseline, where) in jobs
    ]
    different = dict.fromkeys(pair for pair in against if pair[0] != pair[1])
    return Family(systems=list(systems.values()), pairs=list(different))


def _labels(grid: Collection[Cell]) -> dict[tuple[str, str | None], str]:
    """Datasets by name; of those that are searched in several corpora, with the corpus."""
    both = dict.fromkeys((cell.dataset, cell.corpus) for cell in grid)
    often = [dataset for dataset, _ in both]
    return {
        (dataset, corpus): dataset if often.count(dataset) == 1 else f"{dataset} in {corpus}"
        for dataset, corpus in both
    }


def _where(cell: Cell, *, several_seeds: bool) -> str:
    """Such as "context_size=3 seed=1"."""
    values = {**cell.point, **({"seed": cell.seed} if several_seeds else {})}
    return " ".join(f"{path}={msgspec.json.encode(value).decode()}" for path, value in values.items())
