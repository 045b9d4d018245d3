"""Fit the shipped difficulty classifier and measure it: `python -m services.judge.difficulty --data FOLDER`.

`--data` names a folder with MATH's `train.jsonl` and `test-dev.jsonl`. Needs scikit-learn (the extra `train`). Writes
weights, evaluation and card; the same input gives the same weights. CPU, two minutes.
"""

import argparse
from pathlib import Path

import msgspec
import numpy as np

from services.judge.difficulty import card, fit, problems
from services.judge.difficulty.figures import (
    CUT,
    ClassifierEvaluation,
    PartFigures,
    RecordedProbability,
    measure_figures,
    measure_rival,
)
from services.judge.difficulty.fit import FittedClassifier
from services.judge.difficulty.problems import MathProblem
from shared.models.difficulty import EMBEDDINGS, DifficultyClassifier
from shared.models.embedding import StaticEmbedder
from shared.runtime.pins import WEIGHTS

RECORDED = 20
"""Held-out problems whose probabilities by scikit-learn are recorded, to which a test compares the services."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=WEIGHTS.parent)
    options = parser.parse_args()
    parts = problems.split_problems(problems.read_problems(options.data / "train.jsonl"))
    held_out = {"held out": parts.held_out, "test-dev": problems.read_problems(options.data / "test-dev.jsonl")}
    write(options.out, parts.fitted, held_out)


def write(out: Path, fitted: list[MathProblem], held_out: dict[str, list[MathProblem]]) -> None:
    """Fit to `fitted`, measure on every part of `held_out`, and write weights, evaluation and card."""
    embedder = StaticEmbedder(EMBEDDINGS)
    chosen, rivals = fit.fit(fitted, fit.make_embedding_features(embedder)), fit.fit_rivals(fitted, embedder)
    regression = fit.export_regression(chosen, embedder)
    shipped = DifficultyClassifier(regression, embedder)
    evaluation = ClassifierEvaluation(
        fitted=len(fitted),
        strengths={"embeddings": chosen.strength, **{kind: each.strength for kind, each in rivals.items()}},
        parts={name: measure(part, shipped, rivals) for name, part in held_out.items()},
        recorded=record_probabilities(next(iter(held_out.values()))[:RECORDED], chosen),
    )
    out.mkdir(parents=True, exist_ok=True)
    for name, content in (("weights", regression), ("evaluation", evaluation)):
        (out / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    (out / "README.md").write_text(card.render(evaluation))


def measure(part: list[MathProblem], shipped: DifficultyClassifier, rivals: dict[str, FittedClassifier]) -> PartFigures:
    """Measure the shipped classifier as services use it, and the other kinds for comparison."""
    known = shipped.probabilities([problem.text for problem in part])
    probabilities = np.array([CUT if each is None else each for each in known])
    return PartFigures(
        shipped=measure_figures(part, probabilities),
        rivals={kind: measure_rival(part, probabilities, each.probabilities(part)) for kind, each in rivals.items()},
    )


def record_probabilities(part: list[MathProblem], fitted: FittedClassifier) -> list[RecordedProbability]:
    """Record the probabilities that scikit-learn gives."""
    probabilities = fitted.probabilities(part).tolist()
    return [
        RecordedProbability(question=problem.text, probability=probability)
        for problem, probability in zip(part, probabilities, strict=True)
    ]


if __name__ == "__main__":
    main()
