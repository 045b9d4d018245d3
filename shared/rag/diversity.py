"""How different the documents of a list are."""

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

from shared.rag.tfidf import Weights, cosine, terms


def diversity(texts: Sequence[str]) -> float:
    """1 - the mean TF-IDF cosine of all pairs, in [0, 1]; weights are taken over the texts themselves.

    Copies of one text have 0, texts without a common term 1; fewer than two have 0, for one text is not diverse.
    """
    found = [terms(text) for text in texts]
    weights = Weights(found)
    vectors = [weights.vector(each) for each in found]
    pairs = [cosine(left, right) for left, right in combinations(vectors, 2)]
    return 1 - fmean(pairs) if pairs else 0.0
