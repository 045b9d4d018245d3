"""Fit the shipped difficulty classifier and measure it: `python -m services.judge.difficulty --data FOLDER`.

`--data` names a folder with MATH's `train.jsonl` and `test-dev.jsonl`. Needs scikit-learn (the extra `train`). Writes
weights, evaluation and card; the same input gives the same weights. CPU, two minutes.
"""

import argparse
from pathlib import Path

import msgspec
import numpy as np

from services.judge.difficulty import card, fitting, problems
from services.judge.difficulty.figures import CUT, Evaluation, Part, Recorded, figures, rival
from services.judge.difficulty.fitting import Fitted
from services.judge.difficulty.problems import Problem
from shared.models.difficulty import EMBEDDINGS, DifficultyClassifier
from shared.models.static_embeddings import StaticEmbedder
from shared.runtime.models import WEIGHTS

RECORDED = 20
"""Held-out problems whose probabilities by scikit-learn are recorded: a test holds the services to them."""


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=WEIGHTS.parent)
    options = parser.parse_args()
    parts = problems.split(problems.read(options.data / "train.jsonl"))
    held_out = {"held out": parts.held_out, "test-dev": problems.read(options.data / "test-dev.jsonl")}
    write(options.out, parts.fitted, held_out)


def write(out: Path, fitted: list[Problem], held_out: dict[str, list[Problem]]) -> None:
    """Fit to `fitted`, measure on every part of `held_out`, and write the three files."""
    embedder = StaticEmbedder(EMBEDDINGS)
    chosen, rivals = fitting.fit(fitted, fitting.embeddings(embedder)), fitting.rivals(fitted, embedder)
    regression = fitting.regression(chosen, embedder)
    shipped = DifficultyClassifier(regression, embedder)
    evaluation = Evaluation(
        fitted=len(fitted),
        strengths={"embeddings": chosen.strength, **{kind: each.strength for kind, each in rivals.items()}},
        parts={name: measure(part, shipped, rivals) for name, part in held_out.items()},
        recorded=recorded(next(iter(held_out.values()))[:RECORDED], chosen),
    )
    out.mkdir(parents=True, exist_ok=True)
    for name, content in (("weights", regression), ("evaluation", evaluation)):
        (out / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    (out / "README.md").write_text(card.render(evaluation))


def measure(part: list[Problem], shipped: DifficultyClassifier, rivals: dict[str, Fitted]) -> Part:
    """What services would answer, beside what the other kinds would."""
    known = shipped.probabilities([problem.text for problem in part])
    probabilities = np.array([CUT if each is None else each for each in known])
    return Part(
        shipped=figures(part, probabilities),
        rivals={kind: rival(part, probabilities, each.probabilities(part)) for kind, each in rivals.items()},
    )


def recorded(part: list[Problem], fitted: Fitted) -> list[Recorded]:
    """By scikit-learn alone."""
    probabilities = fitted.probabilities(part).tolist()
    return [
        Recorded(question=problem.text, probability=probability)
        for problem, probability in zip(part, probabilities, strict=True)
    ]


if __name__ == "__main__":
    main()
