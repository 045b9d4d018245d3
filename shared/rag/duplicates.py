"""Find near-duplicates of a question, and decide which of them a search leaves out.

A problem is its numbers, operators, relations and variables: two texts that differ in one of them are two problems,
however many words they share. What the words alone say differently ("odd divisors", "even divisors") is decided by the
answers.
"""

import re
from functools import lru_cache
from typing import NamedTuple, assert_never

from shared.contracts import canonical
from shared.contracts.calls import RELEASE_0_1, Duplicates
from shared.contracts.documents import Document
from shared.contracts.params import Params
from shared.mathtext.answers import extract
from shared.mathtext.grading import equal_strict
from shared.rag.cleaning import normalise_characters
from shared.rag.shingles import Shingles, are_alike, make_shingles
from shared.rag.tfidf import CJK, extract_terms

_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,\\!|,)(?=\d{3}(?!\d))")
_HYPHEN = re.compile(r"(?<![\\a-z])([a-z]{3,})(?:-(?=[a-z]{3})|!)")
"""Of "four-scoop", and the mark of "Try it again!": no operators."""
_SINGLE = re.compile(r"\{\s*(\w)\s*\}")
_FORMATTING = re.compile(
    r"\\(?:left|right|displaystyle|textstyle|quad|qquad|text|textbf|textit|mathrm|mathbf|mbox|bf|rm)(?![a-z])"
    r"|\\[ ,;:!()\[\]]|\$|~"
)
_TOKEN = re.compile(rf"\\[a-z]+|\\\S|\d+(?:\.\d+)?|(?<=\d):(?=\d)|[{CJK}]|[^\W\d_{CJK}]+|[^\s\w.,;:?'\"`]|_")
_SPELLINGS = {
    "\\dfrac": "\\frac", "\\tfrac": "\\frac", "\\leq": "\\le", "≤": "\\le", "\\geq": "\\ge", "≥": "\\ge",
    "\\neq": "\\ne", "≠": "\\ne", "\\times": "*", "\\cdot": "*", "×": "*", "·": "*", "÷": "/", "\\div": "/",
    "−": "-", "π": "\\pi", "∞": "\\infty", "°": "\\circ", "√": "\\sqrt",
}  # fmt: skip
_PUNCTUATION = frozenset("、。，？；：“”‘’…¿")
_NUMBERS = {
    *("zero", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen"),
    *("fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty", "thirty", "forty", "fifty"),
    *("sixty", "seventy", "eighty", "ninety", "hundred", "thousand", "million", "billion"),
    *("half", "twice", "double", "triple", "dozen"),
    *"〇零二两三四五六七八九十百千万亿半倍",
}
_ARTICLES = frozenset({"a"})


class ComparableText(NamedTuple):
    """A problem, prepared for comparison."""

    tokens: tuple[str, ...]
    """Words, numbers and signs, without what is formatting."""
    mathematics: tuple[str, ...]
    """Those that are no words: numbers, operators, relations, commands, variables; and words for numbers."""
    shingles: Shingles


def is_same_text(question: str, problem: str) -> bool:
    r"""Return whether both differ only in case, blanks, punctuation and LaTeX's formatting (`\dfrac` is `\frac`).

    A plain passage, which has no problem, is nobody's duplicate.
    """
    question_tokens = make_comparable(question).tokens
    return bool(question_tokens) and question_tokens == make_comparable(problem).tokens


def is_near_duplicate(question: str, problem: str) -> bool:
    """Return whether it is the same text, or has the same mathematics in order and four fifths of its shingles."""
    return are_near_duplicates(make_comparable(question), make_comparable(problem))


def are_near_duplicates(asked: ComparableText, answered: ComparableText) -> bool:
    """Compare two prepared texts in the same way."""
    if not asked.tokens or asked.tokens == answered.tokens:
        return bool(asked.tokens)
    return asked.mathematics == answered.mathematics and are_alike(asked.shingles, answered.shingles)


def has_answer(text: str, gold: str) -> bool:
    r"""Return whether the last `\boxed{}` of a solution is `gold`; without a box, whether the text contains `gold`."""
    answer, _ = extract(text)
    if answer is not None:
        return equal_strict(answer, gold)
    wanted, found = make_comparable(gold).tokens, make_comparable(text).tokens
    return any(found[at : at + len(wanted)] == wanted for at in range(len(found))) if wanted else False


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


@lru_cache(maxsize=16384)
def make_comparable(text: str) -> ComparableText:
    """Prepare `text` for comparison, ignoring case."""
    normal = normalise_characters(canonical.normalise(text)).lower()
    for pattern, by in ((_THOUSANDS, ""), (_HYPHEN, r"\1 "), (_FORMATTING, " "), (_SINGLE, r" \1 ")):
        normal = pattern.sub(by, normal)
    found = (_SPELLINGS.get(token, token) for token in _TOKEN.findall(normal))
    tokens = tuple(token for token in found if token not in _PUNCTUATION)
    return ComparableText(tokens, tuple(filter(_is_mathematics, tokens)), make_shingles(extract_terms(normal)))


def _is_mathematics(token: str) -> bool:
    is_word = token[0].isalpha() and (len(token) > 1 or bool(re.match(f"[{CJK}]", token)))
    return token in _NUMBERS or not (is_word or token in _ARTICLES)
