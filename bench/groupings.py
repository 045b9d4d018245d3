"""Compute what shared residencies of three or four models would save: ``python -m bench.groupings``.

The planner holds all models of a device at once or each by itself. Here every partition of the models is tried on the
same random work: models of 0.4 to 8 GiB on the cards of `bench.plans`. The figures are computed, not measured.
"""

import random
import statistics
from collections.abc import Iterator, Sequence
from itertools import product
from math import inf

from bench.plans import CARDS
from shared.calls import Lane
from shared.lease.memory import Hardware, MemoryEstimate
from shared.lease.plan import Demand, Room, plan

CASES = 200
ORDERS = {"each once": (1, 2), "the judge again": (1, 2, 1), "three turns": (1, 2, 1, 2, 1, 2)}
"""Orders in which one job needs its judge and its generator; models of other jobs follow. No shipped pipeline makes
turns, and a rubric needs the judge again."""
HEAD = ("models", "needed", "cases", "cheaper", "saved, mean", "saved, most", "seconds, most")
TOKENS = {Lane.JUDGE: 16, Lane.GENERATE: 512}


def random_demand(draw: random.Random, number: int) -> Demand:
    """Draw a model with a hundred to ten thousand calls; judges have odd numbers, generators even ones."""
    lane, weights, calls = tuple(Lane)[(number - 1) % 2], 400 * 20 ** draw.random(), 100 * 100 ** draw.random()
    call = Hardware().call(weights, tokens=TOKENS[lane], parallel=8, on_gpu=True)
    return Demand(
        model_id=number, name=f"model-{number}", lane=lane, parallel=8, context=2048, calls=int(calls),
        memory=MemoryEstimate(fixed_mib=weights + 660, per_slot_mib=weights / 60, source="assumed"),
        call_s=call, load_s=Hardware().load(weights),
    )  # fmt: skip


def cheapest_s(demands: Sequence[Demand], budget_mib: int, order: Sequence[int]) -> float:
    """Return the seconds of the cheapest partition of the models that fits; infinite if none does."""
    labelled = product(range(len(demands)), repeat=len(demands))
    partitions = {tuple(labels.index(label) for label in labels) for labels in labelled}
    return min(_seconds(demands, labels, budget_mib, order) for labels in partitions)


def _seconds(demands: Sequence[Demand], labels: Sequence[int], budget_mib: int, order: Sequence[int]) -> float:
    """Return the seconds of a partition in which models with the same label are resident together."""
    groups = {label: [d for d, each in zip(demands, labels, strict=True) if each == label] for label in labels}
    by_model = dict(zip((demand.model_id for demand in demands), labels, strict=True))
    needed = [by_model[model] for model in order]
    opened = [label for n, label in enumerate(needed) if n == 0 or needed[n - 1] != label]
    loads = sum(demand.load_s.value for label in opened for demand in groups[label])
    return loads + sum(_service_s(group, budget_mib) for group in groups.values())


def _service_s(group: Sequence[Demand], budget_mib: int) -> float:
    """Return the seconds of the calls with the halvings that cost least; infinite if none fits."""
    tried = [list(zip(group, slots, strict=True)) for slots in product(*(demand.list_halvings() for demand in group))]
    fitting = [slots for slots in tried if sum(demand.memory.at(n) for demand, n in slots) <= budget_mib]
    return min((sum(demand.service_s(n) for demand, n in slots) for slots in fitting), default=inf)


def savings(models: int, first: Sequence[int]) -> Iterator[tuple[float, float]]:
    """Yield for each case that fits how many seconds of the plan partitions would save, and their share of the plan."""
    draw = random.Random(models)
    for _ in range(CASES):
        demands = [random_demand(draw, number) for number in range(1, models + 1)]
        budget = draw.choice(list(CARDS.values()))
        order = (*first, *range(3, models + 1))
        chosen = plan(demands, [Room(device="gpu:0", budget_mib=budget)], order=order).chosen
        if chosen is not None:
            saved = chosen.seconds - cheapest_s(demands, budget, order)
            yield saved, saved / chosen.seconds


def table() -> str:
    """Write a Markdown row for every number of models and every order."""
    lines = [HEAD, ("---",) * len(HEAD)]
    for models, (name, first) in product((3, 4), ORDERS.items()):
        seconds, shares = zip(*savings(models, first), strict=True)
        cheaper = sum(share > 1e-9 for share in shares)  # smaller shares are rounding errors
        figures = f"{abs(statistics.mean(shares)):.1%}", f"{max(shares):.1%}", f"{max(seconds):.0f}"
        lines.append((str(models), name, str(len(shares)), str(cheaper), *figures))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(table())
