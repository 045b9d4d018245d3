"""What ranx makes of random lists: the oracle of fusion. It brings 500 MB of packages, so its replies are recorded.

    python tests/unit/fusion_oracle.py       # where ranx is installed: writes fusion_oracle.json beside this file

The lists come from a seeded generator: some hold the same documents, some miss a few, some give all documents one
score, some have ties.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

RECORDED = Path(__file__).with_name("fusion_oracle.json")
NORMS = {"min-max": "min-max", "z-score": "zmuv", "rank": "rank"}
"""Our normaliser's name and ranx's; ranx has no sigmoid."""
SHAPES = ("same documents", "some missing", "constant", "tied")
CASES = 24

Scores = Mapping[str, float]


def cases() -> list[dict[str, Any]]:
    """`lists` of (document to score, best first) and their `weights`."""
    return [_case(Random(number), SHAPES[number % len(SHAPES)], 2 + number % 3) for number in range(CASES)]  # noqa: S311


def _case(random: Random, shape: str, lists: int) -> dict[str, Any]:
    documents = [f"d{i:02d}" for i in range(random.randint(3, 12))]
    return {
        "shape": shape,
        "lists": [_scores(random, documents, shape, first=i == 0) for i in range(lists)],
        "weights": [round(random.uniform(0.1, 2), 3) for _ in range(lists)],
    }


def _scores(random: Random, documents: list[str], shape: str, *, first: bool) -> dict[str, float]:
    held = random.sample(documents, max(2, len(documents) // 2)) if shape == "some missing" else list(documents)
    scores = {document: round(random.uniform(-1, 30), 6) for document in held}
    if first and shape == "constant":
        scores = dict.fromkeys(held, 7.5)
    if first and shape == "tied":
        scores |= dict.fromkeys(held[:2], scores[held[0]])
    return dict(sorted(scores.items(), key=lambda entry: (-entry[1], entry[0])))


def asked(case: Mapping[str, Any]) -> dict[str, Any]:
    """ranx's reciprocal rank fusion (k = 60), and per normaliser its values of each list and their weighted sum."""
    import ranx
    from ranx.normalization import norm_switch

    def run(scores: Scores) -> Any:
        return ranx.Run({"q": dict(scores)})

    def scores_of(fused: Any) -> dict[str, float]:
        return {str(document): float(score) for document, score in fused.run["q"].items()}

    said: dict[str, Any] = {"rrf": scores_of(ranx.fuse([run(scores) for scores in case["lists"]], None, "rrf"))}
    for ours, theirs in NORMS.items():
        normed = [scores_of(norm_switch(theirs)(run(scores))) for scores in case["lists"]]
        runs = [run(scores) for scores in case["lists"]]
        fused = ranx.fuse(runs, theirs, "wsum", {"weights": case["weights"]})
        said[ours] = {"lists": normed, "sum": scores_of(fused)}
    return said


def recorded() -> dict[str, Any]:
    """What stands in the file: ranx's version, and its reply to every case."""
    return dict(json.loads(RECORDED.read_text()))


if __name__ == "__main__":
    from importlib.metadata import version

    lines = ",\n".join(json.dumps({**case, "said": asked(case)}) for case in cases())
    RECORDED.write_text(f'{{"ranx": "{version("ranx")}", "cases": [\n{lines}\n]}}\n')
