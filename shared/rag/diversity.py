"""Measure how different the documents of a list are."""

from collections.abc import Sequence
from itertools import combinations
from statistics import fmean

from shared.rag.tfidf import TermWeights, cosine, extract_terms


def measure_diversity(texts: Sequence[str]) -> float:
    """Return 1 - the mean TF-IDF cosine of all pairs, in [0, 1]; weights are computed over these texts.

    Copies of one text have 0, texts without a common term 1; fewer than two have 0, for one text is not diverse.
    """
    found = [extract_terms(text) for text in texts]
    weights = TermWeights(found)
    vectors = [weights.vector(each) for each in found]
    pairs = [cosine(left, right) for left, right in combinations(vectors, 2)]
    return 1 - fmean(pairs) if pairs else 0.0
