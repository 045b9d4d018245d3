"""Cut documents into knowledge strips, of which the relevant ones are put together again (Yan et al. 2024, 4.4).

The three ways to cut are those of the authors' code (`extract_strips_from_psg`): whole passages, windows of 50 words,
or sentences in groups of three, without the stops that ended them. What differs: a passage of fewer than 10 words is
one window (there it is an error), nothing is cut inside a formula, blanks around sentences count for nothing and a
short sentence is joined by one, Chinese characters count as words, and 。 and ？ end sentences.
"""

import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from shared.rag.sentences import find_formulas
from shared.rag.tfidf import CJK, TermWeights, cosine, extract_terms

Mode = Literal["selection", "fixed", "excerption"]
WINDOW = 50
TAIL = 10
"""Words at the end that are too few for a window of their own."""
GROUP = 3
SHORT_SENTENCE = 5
"""A sentence of at most so many words belongs to the one before."""
SHORT_STRIP = 4
"""A strip of fewer words scores worst."""
WORST = -1.0
_WORD = re.compile(rf"[{CJK}]|[^\s{CJK}]+")
_STOP = re.compile(r"\?|\. |[。？]")


class Strip(NamedTuple):
    """A piece of a document."""

    document: str
    """The document's hash."""
    text: str
    score: float


def cut_strips(text: str, mode: Mode) -> list[str]:
    """Cut `text` into strips; an empty text has none."""
    if not text.strip():
        return []
    if mode == "selection":
        return [text]
    return _windows(text) if mode == "fixed" else _excerpts(text)


def split_words(text: str) -> list[str]:
    """Split at blanks; a formula with blanks is one word, and so is every CJK character."""
    return [text[start:end] for start, end in _words(text)]


def score_strips(question: str, pieces: Sequence[tuple[str, str]]) -> list[Strip]:
    """Score strips by their TF-IDF cosine with the question; strips of fewer than 4 words score -1."""
    found = [extract_terms(text) for _, text in pieces]
    weights = TermWeights(found)
    question_vector = weights.vector(extract_terms(question))
    return [
        Strip(
            document,
            text,
            cosine(weights.vector(each), question_vector) if len(split_words(text)) >= SHORT_STRIP else WORST,
        )
        for (document, text), each in zip(pieces, found, strict=True)
    ]


def choose_strips(pieces: Sequence[Strip], top: int, order: Literal["original", "score"]) -> list[Strip]:
    """Return the `top` best strips; ties keep their order.

    The paper keeps the original order, its code sorts by score.
    """
    best = sorted(range(len(pieces)), key=lambda at: -pieces[at].score)[:top]
    return [pieces[at] for at in (sorted(best) if order == "original" else best)]


def _words(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in _WORD.finditer(_mask_formulas(text))]


def _mask_formulas(text: str) -> str:
    """Replace each formula by a long word, so that nothing is found inside."""
    spans = [(0, 0), *find_formulas(text), (len(text), len(text))]
    parts = (text[left[1] : right[0]] + "_" * (right[1] - right[0]) for left, right in pairwise(spans))
    return "".join(parts)


def _windows(text: str) -> list[str]:
    spans = _words(text)
    cuts = [*range(0, len(spans), WINDOW), len(spans)]
    if len(cuts) > 2 and cuts[-1] - cuts[-2] < TAIL:
        del cuts[-2]
    return [text[spans[first][0] : spans[last - 1][1]] for first, last in pairwise(cuts)]


def _excerpts(text: str) -> list[str]:
    """Make strips of three sentences; repeated sentences are dropped, short ones join the one before."""
    joined: list[str] = []
    for sentence in filter(None, _split(text)):
        if sentence in joined:
            continue
        if joined and len(split_words(sentence)) <= SHORT_SENTENCE:
            joined[-1] += f" {sentence}"
        else:
            joined.append(sentence)
    return [" ".join(joined[at : at + GROUP]) for at in range(0, len(joined), GROUP)]


def _split(text: str) -> list[str]:
    """Split at the stops and strip the blanks."""
    stops = [match.span() for match in _STOP.finditer(_mask_formulas(text))]
    cuts = [(0, 0), *stops, (len(text), len(text))]
    return [text[left[1] : right[0]].strip() for left, right in pairwise(cuts)]
