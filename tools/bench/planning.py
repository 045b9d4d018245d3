"""The table of docs/reference/planning-table.md.

The planner computes the figures; nothing is measured. Qwen2.5 0.5B judges and 7B generates, both in one quantisation,
for 500 questions with ten candidates each.
"""

from collections.abc import Iterator

from services.orchestrator.scheduling.whatif import DeviceWanted, ModelWanted, RetrievalWanted, make_demands, make_rooms
from shared.lease.memory import Hardware
from shared.lease.plan import Plan, plan
from tools.bench import Rows, benchmark

CARDS = {"8 GB": 7600, "12 GB": 11_700, "16 GB": 15_800, "24 GB": 24_000}
"""Budgets in MiB, which leave about 500 MiB of each card to driver and display."""
QUANTISATIONS = {"Q4_K_M": "q4_k_m", "Q8_0": "q8_0", "FP16": "f16"}
QUESTIONS = 500
CANDIDATES = 10
SEARCHES = RetrievalWanted(calls=2 * QUESTIONS, gpu_s=0.005, cpu_s=0.05)
HEAD = (
    *("card", "budget", "weights", "plan", "residencies, MiB"),
    *("loads", "flips", "minutes", "all together, on the GPU"),
)


def planned(quantisation: str, budget_mib: int) -> Plan:
    judge = ModelWanted(
        role="judge", preset="qwen2.5-0.5b", quantisation=quantisation, name="judge", context=1024,
        calls=QUESTIONS * CANDIDATES,
    )  # fmt: skip
    generator = ModelWanted(
        role="generate", preset="qwen2.5-7b", quantisation=quantisation, name="generator", context=4096, calls=QUESTIONS
    )
    models = make_demands([judge, generator], Hardware(), on_gpu=True)
    return plan(models, make_rooms([DeviceWanted(budget_mib=budget_mib)]), retrieval=SEARCHES.retrieval())


@benchmark
def plans() -> Rows:
    """Print the table of docs/reference/planning-table.md; the planner computes it, nothing is measured."""
    yield table()


def table() -> str:
    lines = [HEAD, tuple("---" for _ in HEAD), *rows()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def rows() -> Iterator[tuple[str, ...]]:
    for card, budget in CARDS.items():
        for name, quantisation in QUANTISATIONS.items():
            found = planned(quantisation, budget)
            every = [option for option in (found.chosen, *found.others) if option is not None]
            whole = next(option for option in every if option.name == "together, retrieval on the GPU")
            yield card, str(budget), name, *_describe_chosen(found), str(whole.residencies[0].memory_mib)


def _describe_chosen(found: Plan) -> tuple[str, ...]:
    if found.chosen is None:
        return "nothing fits", found.why.partition(": ")[2].partition(";")[0], "-", "-", "-"
    held = []
    for residency in found.chosen.residencies:
        models = [f"{each.name} ×{each.parallel}" for each in residency.models]
        models += ["retrieval"] if residency.retrieval_mib else []
        held.append(f"{' + '.join(models)}: {residency.memory_mib}")
    seconds = f"{found.chosen.seconds / 60:.1f}"
    return found.chosen.name, "; ".join(held), str(found.chosen.loads), str(found.chosen.flips), seconds
