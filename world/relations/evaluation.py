"""Measure the rule generator: made-up names, phrases and forms of questions that training never saw."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, get_args

from world.relations.drawing import Kind, Size
from world.relations.samples import TEST, Template, kind_sample
from world.samples import Sample
from world.serving import REPLY_TOKENS, answered_row, serve_model

FULL = Size(5, 3, dated=0.5, numbered=0.5)
REASONED_TOKENS = 224
#: Scenes of the kind `same` in which one thing is fixed.
FIXED: dict[str, Size] = {
    "1 document": Size(1, 1, dated=0.5, numbered=0.5),
    "3 documents": Size(3, 2, dated=0.5, numbered=0.5),
    "numbered names": Size(5, 3, dated=0.0, numbered=1.0),
    "names of words": Size(5, 3, dated=1.0, numbered=0.0),
}
RULED: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind != "plain")


def draw(kind: Kind, name: Template, size: Size, count: int, seed: int) -> list[Sample]:
    """Test samples; the scenes of a kind are the same under every template."""
    rng = Random(f"test {kind} {size} {seed}")
    return [kind_sample(rng, TEST, kind, name, size) for _ in range(count)]


def measure_rules(model: Path, count: int, seed: int) -> dict[str, Any]:
    """A row per kind and template, one per fixed size, and those of the same scenes with their rules left out."""
    with serve_model(model) as address:

        def row(samples: Sequence[Sample], tokens: int = REPLY_TOKENS) -> dict[str, Any]:
            return answered_row(address, samples, tokens)

        return {
            "rulerag": {kind: row(draw(kind, "rulerag", FULL, count, seed)) for kind in RULED},
            "rulerag-cot": {kind: row(draw(kind, "rulerag-cot", FULL, count, seed), REASONED_TOKENS) for kind in RULED},
            "cot": {
                "plain": row(draw("plain", "cot", FULL, count, seed)),
                **{f"{kind}, rules left out": row(draw(kind, "cot", FULL, count, seed)) for kind in RULED[:2]},
            },
            "sizes": {name: row(draw("same", "rulerag", size, count, seed)) for name, size in FIXED.items()},
        }
