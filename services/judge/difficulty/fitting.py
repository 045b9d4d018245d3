"""Fitting: the classifier, and the trivial ones that it has to beat. Needs scikit-learn, which no service does."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from services.judge.difficulty.problems import FOLDS, Problem
from shared.models.difficulty import Regression
from shared.models.ports import Embedder

STRENGTHS = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Inverse strengths of the L2 penalty that cross-validation inside the fitted part chooses from, by log loss."""
SEED = 0

Probabilities = NDArray[np.float64]


class Fitted(NamedTuple):
    """One kind of classifier, fitted."""

    model: Any
    """A GridSearchCV over texts."""

    @property
    def strength(self) -> float:
        """The chosen inverse strength of the penalty."""
        return float(self.model.best_params_["logisticregression__C"])

    def probabilities(self, problems: Sequence[Problem]) -> Probabilities:
        """Of being hard."""
        found: Probabilities = self.model.predict_proba(texts(problems))[:, 1]
        return found


def fit(problems: Sequence[Problem], *features: Any) -> Fitted:
    """A logistic regression over what `features` make of the texts."""
    steps = make_pipeline(*features, LogisticRegression(max_iter=2000))
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=SEED)
    strata = [f"{problem.subject} {problem.level}" for problem in problems]
    parts = list(folds.split(strata, strata))
    grid = {"logisticregression__C": list(STRENGTHS)}
    search = GridSearchCV(steps, grid, scoring="neg_log_loss", cv=parts)
    return Fitted(search.fit(texts(problems), [problem.hard for problem in problems]))


def rivals(problems: Sequence[Problem], embedder: Embedder) -> dict[str, Fitted]:
    """What the classifier is compared with: less, more, and something else."""
    both = FeatureUnion([("embeddings", embeddings(embedder)), ("length", make_pipeline(*lengths()))])
    return {
        "length": fit(problems, *lengths()),
        "embeddings and length": fit(problems, both),
        "words (TF-IDF)": fit(problems, words()),
    }


def embeddings(embedder: Embedder) -> Any:
    """The texts' vectors: the shipped classifier's features."""
    return FunctionTransformer(lambda rows: embedder.embed_queries(list(rows)).astype(np.float64))


def lengths() -> tuple[Any, Any]:
    """The logarithm of the number of characters."""
    return FunctionTransformer(lambda rows: np.array([[np.log(len(each))] for each in rows])), StandardScaler()


def words() -> Any:
    """TF-IDF of words and pairs of words that occur twice: some forty thousand features."""
    return TfidfVectorizer(sublinear_tf=True, min_df=2, ngram_range=(1, 2))


def regression(fitted: Fitted, embedder: Embedder) -> Regression:
    """What the services read: they need no scikit-learn."""
    model = fitted.model.best_estimator_["logisticregression"]
    weights = tuple(round(float(weight), 8) for weight in model.coef_[0])
    return Regression(embedder=embedder.signature, bias=round(float(model.intercept_[0]), 8), weights=weights)


def texts(problems: Sequence[Problem]) -> NDArray[np.object_]:
    """As scikit-learn takes them."""
    return np.array([problem.text for problem in problems], dtype=object)
