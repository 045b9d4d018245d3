"""The verifier's benchmark: what is changed, what is counted, and which rows are held out."""

import asyncio
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bench.verifier import NUMBER, TRAIN, TUNED_ON, of_untouched, part, run, sample, table, with_another
from shared.contracts.replies import Verified
from shared.mathtext.equations import equations

ROWS: list[dict[str, Any]] = [
    {"unique_id": "a", "subject": "Algebra", "solution": "So $1+1=2$."},
    {"unique_id": "b", "subject": "Algebra", "solution": "So $x=5$ and $2+2=5$."},
    {"unique_id": "c", "subject": "Geometry", "solution": "Look at the picture."},
]


def test_a_changed_text_differs_in_one_number() -> None:
    text = "So $1+0=1$ and 25 more."
    for spot in NUMBER.finditer(text):
        for seed in range(20):
            changed = with_another(text, spot, random.Random(seed))  # noqa: S311 - a test's draw
            numbers = [int(match[0]) for match in NUMBER.finditer(changed)]
            differing = [each for each in zip(numbers, (1, 0, 1, 25), strict=True) if each[0] != each[1]]
            assert len(differing) == 1


def test_equations_are_counted_by_what_became_of_them() -> None:
    counts = of_untouched(equations(r"$1+1=2$, $x=3$, $\sum_i i = 1$"), Verified(verified=1, refuted=0, unknown=2))
    assert (counts["read"], counts["of read"], counts["verified"], counts["refuted"]) == (2, 3, 1, 0)
    assert (counts["none"], counts["decided"], counts["of decided"], counts["untouched"]) == (0, 1, 1, 0)


def test_solutions_are_verified_as_they_are_and_with_a_number_changed() -> None:
    counted, refuted = asyncio.run(run(ROWS, seed=1, processes=1, deadline_s=60))
    algebra, geometry = counted["Algebra"], counted["Geometry"]
    assert (algebra["untouched"], algebra["of untouched"], algebra["of within"], algebra["within"]) == (1, 2, 1, 1)
    assert (geometry["none"], geometry["of any"], geometry["of within"]) == (1, 0, 0)
    assert refuted == {"b": ["2+2=5"]}
    lines = list(table(counted))
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["all (3)", "Algebra (2)", "Geometry (1)"]


def test_a_share_of_nothing_is_no_share() -> None:
    assert list(table({"Algebra": Counter({"of none": 1})}))[2].endswith("| - | - | - | - |")


def test_no_row_is_tuned_on_and_held_out(tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    rows = [{"unique_id": str(n), "subject": "Algebra"} for n in range(TUNED_ON + 10)]
    data.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    tuned, held_out = (part(data, name) for name in ("tuned-on", "held-out"))
    assert (len(tuned), len(held_out)) == (TUNED_ON, 10)
    assert not {row["unique_id"] for row in tuned} & {row["unique_id"] for row in held_out}
    assert sample(held_out, 5, 1) == sample(held_out, 5, 1)


@pytest.mark.skipif(not TRAIN.exists(), reason="../shared/data/math/train.jsonl is not there")
def test_maths_own_solutions_are_drawn_with_every_subjects_share() -> None:
    drawn = sample(part(TRAIN, "held-out"), 140, 1)
    assert (len(drawn), len({row["subject"] for row in drawn})) == (140, 7)
