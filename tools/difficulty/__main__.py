"""Fit the shipped difficulty classifier and measure it: `python -m tools.difficulty --data FOLDER`.

`--data` names a folder with MATH's `train.jsonl` and `test-dev.jsonl`. Needs scikit-learn (the extra `train`). Writes
weights, evaluation and card; the same input gives the same weights. CPU, two minutes.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from shared.models.difficulty import DifficultyClassifier, Regression
from shared.models.embedding import Embedder, StaticEmbedder
from shared.runtime.pins import WEIGHTS
from shared.settings import EMBEDDINGS
from tools.difficulty.figures import (
    CUT,
    FOLDS,
    SEED,
    ClassifierEvaluation,
    MathProblem,
    PartFigures,
    RecordedProbability,
    measure_figures,
    measure_rival,
    read_problems,
    render,
    split_problems,
)

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Inverse strengths of the L2 penalty, of which cross-validation in the fitted part chooses by log loss."""

Probabilities = NDArray[np.float64]


class FittedClassifier(NamedTuple):
    """Holds a fitted classifier and the search that chose its penalty."""

    model: Any
    """A GridSearchCV over texts."""

    @property
    def strength(self) -> float:
        return float(self.model.best_params_["logisticregression__C"])

    def probabilities(self, problems: Sequence[MathProblem]) -> Probabilities:
        found: Probabilities = self.model.predict_proba(list_texts(problems))[:, 1]
        return found


def fit(problems: Sequence[MathProblem], *features: Any) -> FittedClassifier:
    """Fit a logistic regression to `features` of the texts."""
    steps = make_pipeline(*features, LogisticRegression(max_iter=2000))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED)
    strata = [f"{problem.subject} {problem.level}" for problem in problems]
    parts = list(folds.split(strata, strata))
    grid = {"logisticregression__C": list(STRENGTHS)}
    search = GridSearchCV(steps, grid, scoring="neg_log_loss", cv=parts)
    return FittedClassifier(search.fit(list_texts(problems), [problem.hard for problem in problems]))


def fit_rivals(problems: Sequence[MathProblem], embedder: Embedder) -> dict[str, FittedClassifier]:
    """Fit the classifiers for comparison: fewer features, more features, and words."""
    both = FeatureUnion(
        [("embeddings", make_embedding_features(embedder)), ("length", make_pipeline(*make_length_features()))]
    )
    # Of words and pairs of words that occur at least twice: about 40,000 features.
    words = TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=(1, 2))
    return {
        "length": fit(problems, *make_length_features()),
        "embeddings and length": fit(problems, both),
        "words (TF-IDF)": fit(problems, words),
    }


def make_embedding_features(embedder: Embedder) -> Any:
    """Return the transformer of texts to vectors, the features of the shipped classifier."""
    return FunctionTransformer(lambda rows: embedder.embed_queries(list(rows)).astype(np.float64))


def make_length_features() -> tuple[Any, Any]:
    """Return the transformers of texts to the scaled logarithm of their number of characters."""
    return FunctionTransformer(lambda rows: np.array([[np.log(len(each))] for each in rows])), StandardScaler()


def export_regression(fitted: FittedClassifier, embedder: Embedder) -> Regression:
    """Export the weights in the form that services read without scikit-learn."""
    model = fitted.model.best_estimator_["logisticregression"]
    weights = tuple(round(float(weight), 8) for weight in model.coef_[0])
    return Regression(embedder=embedder.signature, bias=round(float(model.intercept_[0]), 8), weights=weights)


def list_texts(problems: Sequence[MathProblem]) -> NDArray[np.object_]:
    """Return the texts as the array that scikit-learn needs."""
    return np.array([problem.text for problem in problems], dtype=object)


RECORDED = 20
"""Held-out problems whose probabilities by scikit-learn are recorded, to which a test compares the services."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=WEIGHTS.parent)
    options = parser.parse_args()
    parts = split_problems(read_problems(options.data / "train.jsonl"))
    held_out = {"held out": parts.held_out, "test-dev": read_problems(options.data / "test-dev.jsonl")}
    write(options.out, parts.fitted, held_out)


def write(out: Path, fitted: list[MathProblem], held_out: dict[str, list[MathProblem]]) -> None:
    """Fit to `fitted`, measure on every part of `held_out`, and write weights, evaluation and card."""
    embedder = StaticEmbedder(EMBEDDINGS)
    chosen, rivals = fit(fitted, make_embedding_features(embedder)), fit_rivals(fitted, embedder)
    regression = export_regression(chosen, embedder)
    shipped = DifficultyClassifier(regression, embedder)
    recorded = next(iter(held_out.values()))[:RECORDED]
    evaluation = ClassifierEvaluation(
        fitted=len(fitted),
        strengths={"embeddings": chosen.strength, **{kind: each.strength for kind, each in rivals.items()}},
        parts={name: measure(part, shipped, rivals) for name, part in held_out.items()},
        recorded=[
            RecordedProbability(question=problem.text, probability=probability)
            for problem, probability in zip(recorded, chosen.probabilities(recorded).tolist(), strict=True)
        ],
    )
    out.mkdir(parents=True, exist_ok=True)
    for name, content in (("weights", regression), ("evaluation", evaluation)):
        (out / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n")
    (out / "README.md").write_text(render(evaluation))


def measure(part: list[MathProblem], shipped: DifficultyClassifier, rivals: dict[str, FittedClassifier]) -> PartFigures:
    """Measure the shipped classifier as services use it, and the other kinds for comparison."""
    known = shipped.probabilities([problem.text for problem in part])
    probabilities = np.array([CUT if each is None else each for each in known])
    return PartFigures(
        shipped=measure_figures(part, probabilities),
        rivals={kind: measure_rival(part, probabilities, each.probabilities(part)) for kind, each in rivals.items()},
    )


if __name__ == "__main__":
    main()
