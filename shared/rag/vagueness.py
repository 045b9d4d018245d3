"""Recognise questions that are too vague to search for (seed document 003, on short queries).

Of words that every document has, BM25 weighs how often and in how short a text they occur; a vector of such words lies
in the middle, next to texts that are about nothing (hubs). Both lists have a first place all the same, and fusion takes
it for relevance. It cannot be seen in the lists, whose scores are relative, but in the question.
"""

import re
from typing import Literal

from shared.rag.dictionary import compile_generic_chinese, is_generic
from shared.rag.prose import CJK, find_mathematics, list_prose
from shared.rag.tfidf import extract_terms

Vagueness = Literal["generic", "short"]

FEW = 3
"""Fewer specific terms than these are short (003: `len(query.split()) < 3`)."""

_WORD = re.compile(r"[^\W\d_]+")
_RUN = re.compile(f"[{CJK}]+")


def classify_vagueness(question: str) -> Vagueness | None:
    """Return `generic` if no term is specific, `short` if fewer than 3 are, else None.

    A question without any term, of signs alone, is none of these: words find nothing for it, which is no noise.
    """
    specific = find_specific_terms(question)
    if not specific:
        return "generic" if extract_terms(question) else None
    return "short" if specific < FEW else None


def find_specific_terms(question: str) -> int:
    """Return mathematical terms and words that are not generic; in Chinese, two characters are a word."""
    exact = sum(len(extract_terms(question[start:end])) for start, end in find_mathematics(question))
    spoken = " ".join(list_prose(question)).lower()
    words = sum(not is_generic(word) for word in _WORD.findall(_RUN.sub(" ", spoken)))
    characters = sum(len(rest) for run in _RUN.findall(spoken) for rest in compile_generic_chinese().split(run))
    return exact + words + -(-characters // 2)
