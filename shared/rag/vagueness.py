"""Questions that say too little to be searched for (seed document 003, on short queries).

Of words that every document has, BM25 weighs how often and in how short a text they occur; a vector of such words lies
in the middle, next to texts that are about nothing (hubs). Both lists have a first place all the same, and fusion takes
it for relevance. It cannot be seen in the lists, whose scores are relative, but in the question.
"""

import re
from typing import Literal

from shared.rag.dictionary import generic_chinese, is_generic
from shared.rag.prose import CJK, mathematics, prose
from shared.rag.tfidf import terms

Vagueness = Literal["generic", "short"]

FEW = 3
"""Fewer specific terms than these are short (003: `len(query.split()) < 3`)."""

_WORD = re.compile(r"[^\W\d_]+")
_RUN = re.compile(f"[{CJK}]+")


def vagueness(question: str) -> Vagueness | None:
    """`generic`: no term of the question says anything; `short`: fewer than 3 do; None: it says enough.

    A question without any term, of signs alone, is none of these: words find nothing for it, which is no noise.
    """
    specific = specific_terms(question)
    if not specific:
        return "generic" if terms(question) else None
    return "short" if specific < FEW else None


def specific_terms(question: str) -> int:
    """Terms of the mathematics, and words that do not occur in any question; of Chinese, two characters are a word."""
    exact = sum(len(terms(question[start:end])) for start, end in mathematics(question))
    spoken = " ".join(prose(question)).lower()
    words = sum(not is_generic(word) for word in _WORD.findall(_RUN.sub(" ", spoken)))
    characters = sum(len(rest) for run in _RUN.findall(spoken) for rest in generic_chinese().split(run))
    return exact + words + -(-characters // 2)
