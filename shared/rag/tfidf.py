r"""Compare texts by weighted terms where no model can be called: sentences, strips and documents.

Weight of a term = its count * idf, idf = ln((1 + N) / (1 + n)) + 1 over the N texts that are compared with each other,
n of which hold the term (the smoothed form: a term that all of them hold still counts, one that none holds is finite).
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_TERM = re.compile(rf"\\[a-z]+|[{CJK}]+|\d+(?:[.,]\d+)*|[^\W\d_{CJK}]+")
_RUN = re.compile(f"[{CJK}]{{2,}}")

Vector = Mapping[str, float]


def extract_terms(text: str) -> list[str]:
    r"""Return words, numbers and commands such as `\frac` in lower case and in order; CJK runs as pairs."""
    found: list[str] = []
    for term in _TERM.findall(text.lower()):
        found += (term[at : at + 2] for at in range(len(term) - 1)) if _RUN.match(term) else [term]
    return found


class TermWeights:
    """The weights of terms, from the texts in which they occur."""

    def __init__(self, texts: Iterable[Sequence[str]]) -> None:
        """Count the texts (each as its terms) that hold a term."""
        counted = [set(found) for found in texts]
        self._texts = len(counted)
        self._holding = Counter(term for found in counted for term in found)

    def idf(self, term: str) -> float:
        """Return the inverse document frequency, which is 1 for a term that every text contains."""
        return math.log((1 + self._texts) / (1 + self._holding[term])) + 1

    def vector(self, found: Sequence[str]) -> Vector:
        """Return count times idf of every term, scaled to length 1; empty for a text without terms."""
        weights = {term: count * self.idf(term) for term, count in Counter(found).items()}
        length = math.sqrt(math.fsum(weight * weight for weight in weights.values()))
        return {term: weight / length for term, weight in weights.items()}


def cosine(left: Vector, right: Vector) -> float:
    """Return the cosine of two vectors of length 1, in [0, 1]; 0 if one is empty."""
    small, large = sorted((left, right), key=len)
    return min(1.0, math.fsum(weight * large[term] for term, weight in small.items() if term in large))
