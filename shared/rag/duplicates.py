"""Near-duplicates of a question, and which of them a search leaves out.

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
from shared.rag.cleaning import plain
from shared.rag.shingles import Shingles, alike, shingles
from shared.rag.tfidf import CJK, terms

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


class Wording(NamedTuple):
    """A problem, read for comparison."""

    tokens: tuple[str, ...]
    """Words, numbers and signs, without what is formatting."""
    mathematics: tuple[str, ...]
    """Those that are no words: numbers, operators, relations, commands, variables; and words for numbers."""
    shingles: Shingles


def same_text(question: str, problem: str) -> bool:
    r"""Whether they differ in capitals, blanks, punctuation and LaTeX's formatting at most (`\dfrac` is `\frac`).

    A plain passage, which has no problem, is nobody's duplicate.
    """
    asked = wording(question).tokens
    return bool(asked) and asked == wording(problem).tokens


def is_near_duplicate(question: str, problem: str) -> bool:
    """Whether it is the same text, or has the same mathematics in the same order and four fifths of its shingles."""
    return are_near_duplicates(wording(question), wording(problem))


def are_near_duplicates(asked: Wording, answered: Wording) -> bool:
    """The same of two texts that were read already."""
    if not asked.tokens or asked.tokens == answered.tokens:
        return bool(asked.tokens)
    return asked.mathematics == answered.mathematics and alike(asked.shingles, answered.shingles)


def has_answer(text: str, gold: str) -> bool:
    r"""Whether the last `\boxed{}` of a solution is `gold`; without a box: whether `gold` stands in the text."""
    answer, _ = extract(text)
    if answer is not None:
        return equal_strict(answer, gold)
    wanted, found = wording(gold).tokens, wording(text).tokens
    return any(found[at : at + len(wanted)] == wanted for at in range(len(found))) if wanted else False


def is_left_out(rule: Duplicates, question: str, gold: str, document: Document) -> bool:
    """Whether a search for `question`, whose answer is `gold` (empty: not known), leaves the document out."""
    match rule:
        case "off":
            return False
        case "same-text":
            return same_text(question, document.problem)
        case "same-answer":
            return same_text(question, document.problem) or (
                bool(gold) and is_near_duplicate(question, document.problem) and has_answer(document.text, gold)
            )
        case "same-words":
            return same_words(question, document.problem)
        case _:
            assert_never(rule)


def same_words(question: str, problem: str) -> bool:
    """Whether question and problem share four fifths of their shingles, whatever their numbers and operators are.

    That was release 0.1's rule, which its jobs keep as `same-words`. A plain passage, without a problem, is never one.
    """
    asked, answered = (canonical.normalise(text).lower() for text in (question, problem))
    if asked == answered or not answered:
        return bool(answered)
    return alike(shingles(terms(asked)), shingles(terms(answered)))


def repeats(question: str, problem: str, params: Params) -> bool:
    """Whether a pipeline itself leaves a document out: in jobs of release 0.1, whose searches for a rewritten question
    did not know the item's own.
    """
    return params.duplicates == RELEASE_0_1 and same_words(question, problem)


@lru_cache(maxsize=16384)
def wording(text: str) -> Wording:
    """`text`, read for comparison; capitals do not count."""
    normal = plain(canonical.normalise(text)).lower()
    for pattern, by in ((_THOUSANDS, ""), (_HYPHEN, r"\1 "), (_FORMATTING, " "), (_SINGLE, r" \1 ")):
        normal = pattern.sub(by, normal)
    found = (_SPELLINGS.get(token, token) for token in _TOKEN.findall(normal))
    tokens = tuple(token for token in found if token not in _PUNCTUATION)
    return Wording(tokens, tuple(filter(_is_mathematics, tokens)), shingles(terms(normal)))


def _is_mathematics(token: str) -> bool:
    is_word = token[0].isalpha() and (len(token) > 1 or bool(re.match(f"[{CJK}]", token)))
    return token in _NUMBERS or not (is_word or token in _ARTICLES)
