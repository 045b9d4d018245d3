"""Find near-duplicates of a question, and decide which of them a search leaves out.

A problem is its numbers, operators, relations and variables: two texts that differ in one of them are two problems,
however many words they share. What the words alone say differently ("odd divisors", "even divisors") is decided by the
answers. Both texts are compared in one spelling (`shared.rag.spelling`).
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, assert_never

from shared import canonical
from shared.calls import RELEASE_0_1, Duplicates
from shared.mathtext.answers import extract
from shared.mathtext.grading import equal_strict
from shared.params import Params
from shared.rag.shingles import Shingles, are_alike, make_shingles
from shared.rag.spelling import list_problem_tokens, list_tokens
from shared.rag.tfidf import CJK, extract_terms
from shared.replies import Document
from shared.samples import Decision, Library

_NUMBERS = {
    *("zero", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"),
    *("fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "thirty", "forty", "fifty"),
    *("sixty", "seventy", "eighty", "ninety", "hundred", "thousand", "million", "billion"),
    *("half", "twice", "double", "triple", "dozen"),
    *"〇零二两三四五六七八九十百千万亿半倍",
}
_ARTICLES = frozenset({"a"})
RESEMBLING = 0.9
"""Share of common shingles from which a document that was not left out is noted."""
_CHARACTER = re.compile(f"[{CJK}]")


class ComparableText(NamedTuple):
    """A problem, prepared for comparison."""

    form: str
    """Its tokens in one spelling, with blanks only before numbers: equal forms are the same text."""
    mathematics: tuple[str, ...]
    """Tokens that are no words: numbers, operators, relations, commands, variables; and words for numbers."""
    shingles: Shingles
    """Of words, numbers and commands; of Chinese, Japanese and Korean texts of pairs of characters."""


def is_same_text(question: str, problem: str) -> bool:
    r"""Return whether both differ only in case, blanks, punctuation, spelling (`\dfrac12` is ½) and a prompt around.

    A plain passage, which has no problem, is nobody's duplicate.
    """
    form = make_comparable(question).form
    return bool(form) and form == make_comparable(problem).form


def is_near_duplicate(question: str, problem: str) -> bool:
    """Return whether it is the same text, or has the same mathematics in order and four fifths of its shingles."""
    return are_near_duplicates(make_comparable(question), make_comparable(problem))


def are_near_duplicates(asked: ComparableText, answered: ComparableText) -> bool:
    """Compare two prepared texts in the same way."""
    if not asked.form or asked.form == answered.form:
        return bool(asked.form)
    return asked.mathematics == answered.mathematics and are_alike(asked.shingles, answered.shingles)


def has_answer(text: str, gold: str) -> bool:
    r"""Return whether the last `\boxed{}` of a solution is `gold`; without a box, whether the text contains `gold`."""
    answer, _ = extract(text)
    if answer is not None:
        return equal_strict(answer, gold)
    wanted, found = list_tokens(gold), list_tokens(text)
    return bool(wanted) and f" {' '.join(wanted)} " in f" {' '.join(found)} "


def is_left_out(rule: Duplicates, question: str, gold: str, document: Document) -> bool:
    """Return whether a search for `question` leaves the document out; an empty `gold` is not known."""
    match rule:
        case "off":
            return False
        case "same-text":
            return is_same_text(question, document.problem)
        case "same-answer":
            return is_same_text(question, document.problem) or (
                bool(gold) and is_near_duplicate(question, document.problem) and has_answer(document.text, gold)
            )
        case "same-words":
            return has_same_words(question, document.problem)
        case _:
            assert_never(rule)


def has_same_words(question: str, problem: str) -> bool:
    """Return whether question and problem share four fifths of their shingles, whatever their numbers are.

    That was release 0.1's rule, which its jobs keep as `same-words`. A plain passage, without a problem, is never one.
    """
    asked, answered = (canonical.normalise(text).lower() for text in (question, problem))
    if asked == answered or not answered:
        return bool(answered)
    return are_alike(make_shingles(extract_terms(asked)), make_shingles(extract_terms(answered)))


def repeats_question(question: str, problem: str, params: Params) -> bool:
    """Return whether the pipeline itself leaves a document out.

    It does in jobs of release 0.1, whose searches for a rewritten question did not know the item's own question.
    """
    return params.duplicates == RELEASE_0_1 and has_same_words(question, problem)


def note_resembling_documents(question: str, context: Sequence[str], library: Library) -> tuple[Decision, ...]:
    """Note every document of a prompt (`context`, by hash) that all but repeats the question and was not left out.

    What differs may be a number, which makes another problem, or a spelling or wrapping that is not known here, so that
    the document gives the answer away: a person must look.

    Raises:
        KeyError: `library` lacks a document.
    """
    shares = {document: measure_overlap(question, library[document]) for document in context}
    return tuple(
        Decision(stage="duplicates", action="kept", detail={"document": document, "share": share})
        for document, share in shares.items()
        if share >= RESEMBLING
    )


def measure_overlap(question: str, document: Document) -> float:
    """Return the share of the question's shingles that are in the document's problem, or in its text if it has none.

    A longer question may be the problem in a prompt: then it is the share of the problem's shingles in the question, if
    the problem has at least five; fewer may be in a question by chance.
    """
    asked = make_comparable(question).shingles
    found = make_comparable(document.problem).shingles if document.problem else _prepare(document.text).shingles
    shorter = len(found) if document.problem and len(found) >= 5 else len(asked)
    return len(asked & found) / max(1, min(len(asked), shorter))


@lru_cache(maxsize=16384)
def make_comparable(problem: str) -> ComparableText:
    """Prepare a problem for comparison, ignoring case."""
    return _prepare(problem)


def _prepare(problem: str) -> ComparableText:
    tokens = list_problem_tokens(problem)
    form = "".join(f" {token}" if token[0].isdigit() else token for token in tokens)
    terms = [token for token in tokens if token[-1].isalnum()]
    if not form.isascii():
        terms = [
            left + right if _CHARACTER.match(left) and _CHARACTER.match(right) else left
            for left, right in zip(terms, [*terms[1:], ""], strict=False)
        ]
    return ComparableText(form, tuple(filter(_is_mathematics, tokens)), make_shingles(terms))


def _is_mathematics(token: str) -> bool:
    is_word = token[0].isalpha() and (len(token) > 1 or token in _ARTICLES or bool(_CHARACTER.match(token)))
    return not is_word or token in _NUMBERS
