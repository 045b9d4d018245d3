"""Fit the classifier and the simpler ones that it is compared with. Needs scikit-learn, which services do not."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from services.judge.difficulty.problems import FOLDS, MathProblem
from shared.models.difficulty import Regression
from shared.models.embedding import Embedder

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Inverse strengths of the L2 penalty, of which cross-validation in the fitted part chooses by log loss."""
SEED = 0

Probabilities = NDArray[np.float64]


class FittedClassifier(NamedTuple):
    """Holds a fitted classifier and the search that chose its penalty."""

    model: Any
    """A GridSearchCV over texts."""

    @property
    def strength(self) -> float:
        """Return the inverse strength of the penalty that the cross-validation chose."""
        return float(self.model.best_params_["logisticregression__C"])

    def probabilities(self, problems: Sequence[MathProblem]) -> Probabilities:
        """Return the probability of each problem that it is hard."""
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
    return {
        "length": fit(problems, *make_length_features()),
        "embeddings and length": fit(problems, both),
        "words (TF-IDF)": fit(problems, make_word_features()),
    }


def make_embedding_features(embedder: Embedder) -> Any:
    """Return the transformer of texts to vectors, the features of the shipped classifier."""
    return FunctionTransformer(lambda rows: embedder.embed_queries(list(rows)).astype(np.float64))


def make_length_features() -> tuple[Any, Any]:
    """Return the transformers of texts to the scaled logarithm of their number of characters."""
    return FunctionTransformer(lambda rows: np.array([[np.log(len(each))] for each in rows])), StandardScaler()


def make_word_features() -> Any:
    """Return the TF-IDF of words and pairs of words that occur at least twice: about 40,000 features."""
    return TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=(1, 2))


def export_regression(fitted: FittedClassifier, embedder: Embedder) -> Regression:
    """Export the weights in the form that services read without scikit-learn."""
    model = fitted.model.best_estimator_["logisticregression"]
    weights = tuple(round(float(weight), 8) for weight in model.coef_[0])
    return Regression(embedder=embedder.signature, bias=round(float(model.intercept_[0]), 8), weights=weights)


def list_texts(problems: Sequence[MathProblem]) -> NDArray[np.object_]:
    """Return the texts as the array that scikit-learn needs."""
    return np.array([problem.text for problem in problems], dtype=object)
