"""Measure the verifier's errors on MATH's own solutions, untouched and with one number changed.

    .venv/bin/python -m bench.verifier --solutions 1400 [--part held-out] [--json FILE]

Nearly all untouched solutions are right, so an equation refuted in them is an error of the verifier or of MATH. A
changed number should be found if an equation depends on it; one row changes any number of the solution, the other a
number in a verified equation. Documents are verified as calls are, in processes with a deadline. The first 3,000 rows,
in a fixed random order, were used to write the verifier; `held-out` are the others.
"""

import argparse
import asyncio
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from services.judge.verification_pool import VerificationPool
from shared.contracts.replies import Verified
from shared.ingest.strata import draw_stratified
from shared.mathtext.equations import Equation, equations, holds
from shared.settings import REPOSITORY
from shared.statistics.intervals import wilson

TRAIN = REPOSITORY.parent / "shared" / "data" / "math" / "train.jsonl"
TUNED_ON = 3000
NUMBER = re.compile(r"\d+")
CHANGES = (-2, -1, 1, 2, 10)
WORDS = {
    "read": "equations that could be read",
    "verified": "equations verified",
    "refuted": "equations refuted",
    "none": "solutions without an equation that could be read",
    "decided": "solutions with an equation that was decided",
    "untouched": "untouched solutions with a refuted equation",
    "any": "the same, any one number changed",
    "within": "the same, one number of a verified equation changed",
    "timeouts": "documents past the deadline",
}
Counts = Counter[str]
"""Counts by `WORDS`' keys; the total for each key has the prefix "of "."""


def main() -> None:
    """Verify the solutions, count, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=TRAIN)
    parser.add_argument("--solutions", type=int, default=1400, help="drawn with every subject's share")
    parser.add_argument("--part", choices=("tuned-on", "held-out"), default="held-out")
    parser.add_argument("--seed", type=int, default=1, help="of the sample and of the changes")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--deadline", type=float, default=20.0, help="seconds a document")
    parser.add_argument("--json", type=Path, help="counts by subject, and what was refuted in untouched solutions")
    options = parser.parse_args()
    rows = sample(part(options.data, options.part), options.solutions, options.seed)
    counted, refuted = asyncio.run(run(rows, options.seed, options.processes, options.deadline))
    for line in table(counted):
        print(line)
    if options.json:
        found = {"counts": {name: dict(counts) for name, counts in counted.items()}, "refuted": refuted}
        options.json.write_text(json.dumps(found, indent=1, sort_keys=True), "utf-8")


def part(data: Path, name: str) -> list[dict[str, Any]]:
    """Return the rows used to write the verifier, or the others."""
    with data.open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    random.Random(0).shuffle(rows)
    return rows[:TUNED_ON] if name == "tuned-on" else rows[TUNED_ON:]


def sample(rows: Sequence[dict[str, Any]], n: int, seed: int) -> list[dict[str, Any]]:
    """Draw `n` rows, stratified by subject."""
    return [rows[place] for place in draw_stratified([row["subject"] for row in rows], min(n, len(rows)), seed)]


async def run(
    rows: Sequence[dict[str, Any]], seed: int, processes: int, deadline_s: float
) -> tuple[dict[str, Counts], dict[str, list[str]]]:
    """Verify all rows; return counts by subject, and the refuted equations of untouched solutions by id."""
    counted: defaultdict[str, Counts] = defaultdict(Counter)
    refuted: dict[str, list[str]] = {}
    async with VerificationPool(processes, deadline_s) as pool:
        for ended in asyncio.as_completed([_solution(pool, row, seed) for row in rows]):
            row, counts = await ended
            counted[row["subject"]] += counts
            if counts["untouched"]:
                refuted[row["unique_id"]] = [each.text for each in equations(row["solution"]) if holds(each) is False]
    return dict(sorted(counted.items())), dict(sorted(refuted.items()))


async def _solution(pool: VerificationPool, row: dict[str, Any], seed: int) -> tuple[dict[str, Any], Counts]:
    """Verify one solution untouched, and with a number changed in either way."""
    text, rng = row["solution"], random.Random(f"{seed} {row['unique_id']}")
    reply = await pool.verify(text, 0)
    counts = Counter({"of none": 1, "of timeouts": 1, "timeouts": not isinstance(reply, Verified)})
    if not isinstance(reply, Verified):
        return row, counts
    counts += of_untouched(equations(text), reply)
    for way, spots in (("any", list(NUMBER.finditer(text))), ("within", _verified_numbers(text))):
        if spots:
            changed = await pool.verify(with_another(text, rng.choice(spots), rng), 0)
            counts += Counter({f"of {way}": 1, way: isinstance(changed, Verified) and changed.refuted > 0})
    return row, counts


def of_untouched(found: Sequence[Equation], reply: Verified) -> Counts:
    """Count the equations of one untouched solution."""
    decided = reply.verified + reply.refuted
    counts = Counter({"read": sum(each.read for each in found), "verified": reply.verified, "refuted": reply.refuted})
    counts += Counter({f"of {name}": len(found) for name in ("read", "verified", "refuted")})
    counts += Counter(
        {"none": not any(each.read for each in found), "decided": decided > 0, "untouched": reply.refuted > 0}
    )
    return counts + Counter({"of decided": 1, "of untouched": 1})


def _verified_numbers(text: str) -> list[re.Match[str]]:
    """Find the numbers of the equations that hold."""
    return [spot for equation in equations(text) if holds(equation) for spot in _numbers(text, equation)]


def _numbers(text: str, equation: Equation) -> Iterator[re.Match[str]]:
    start = text.find(equation.text)
    return NUMBER.finditer(text, start, start + len(equation.text)) if start >= 0 else iter(())


def with_another(text: str, spot: re.Match[str], rng: random.Random) -> str:
    """Replace one number in the text by another that is not negative."""
    number = int(spot[0][:9])
    another = number + rng.choice([change for change in CHANGES if number + change >= 0])
    return text[: spot.start()] + str(another) + text[spot.end() :]


def table(counted: dict[str, Counts]) -> Iterator[str]:
    """Yield a row of shares with Wilson's 95 % intervals for all subjects together, then for each."""
    total = sum(counted.values(), Counter())
    yield "| " + " | ".join(["", *WORDS.values()]) + " |"
    yield "|" + "---|" * (len(WORDS) + 1)
    for name, counts in (("all", total), *counted.items()):
        yield "| " + " | ".join([f"{name} ({counts['of none']})", *(_share(counts, key) for key in WORDS)]) + " |"


def _share(counts: Counts, key: str) -> str:
    found = wilson(counts[key], counts[f"of {key}"])
    if found.value is None:
        return "-"
    return f"{found.value:.1%} ({found.low:.1%} to {found.high:.1%}; {counts[key]} of {counts[f'of {key}']})"


if __name__ == "__main__":
    main()
