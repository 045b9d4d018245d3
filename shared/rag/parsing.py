"""Parse the judge's replies."""

import json
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from shared.contracts.replies import Failure, FailureKind, Rated

_RATING = re.compile(r"\[\[([0-9]+)\]\]")
_RATINGS = frozenset({"1", "2", "3", "4", "5"})
_NUMBER = r"-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
# A number that the token limit may have cut has nothing behind it.
_SCORE = re.compile(rf"""["']relevance_score["']\s*:\s*["']?({_NUMBER})["']?\s*[,}}\n]""")
_REASON = re.compile(r""""reasoning"\s*:\s*"(?P<reason>(?:[^"\\]|\\.)*)""", re.DOTALL)
_DETAIL_CHARACTERS = 120
_NAMED = re.compile(
    r"[\"']?\b(?:rating|score|grade)\b[\"']?\s*(?:is|[:=：])?\s*[\"']?(-?[0-9]+(?:\.[0-9]+)?)", re.IGNORECASE
)
_CHINESE = re.compile(r"(?:评分|分数)\s*(?:是|为|[:：])?\s*(-?[0-9]+(?:\.[0-9]+)?)")
_ALONE = re.compile(r"[^\w-]*(-?[0-9]+(?:\.[0-9]+)?)\s*(?:(?:/|out of)\s*5|分)?\W*", re.IGNORECASE)


def parse_rating(text: str, *, truncated: bool) -> Rated | Failure:
    """Find the rating in a judge's reply: exactly one distinct `[[1]]` to `[[5]]`, however often it is repeated.

    `[[0]]` and `[[6]]` are no ratings and are not clamped to one; two different numbers are no rating either.
    Returns a `Failure` otherwise: TRUNCATED if the token limit ended a reply that holds no `[[n]]`, else UNPARSED.
    (Seed document 000, section 3.2.2, takes any digit and the first match.)
    """
    found = set(_RATING.findall(text))
    if len(found) == 1 and found <= _RATINGS:
        return Rated(rating=int(found.pop()), text=text)
    kind = FailureKind.TRUNCATED if truncated and not found else FailureKind.UNPARSED
    return Failure(kind=kind, detail=f"no single [[1]] to [[5]] in {_shorten(text)!r}")


def parse_grade(text: str, *, truncated: bool) -> Rated | Failure:
    """Read the rating in a reply to a rubric: `[[4]]`, else `"rating": 4` in JSON or words, else a number (`4/5`).

    All ratings that stand there in the first of these forms must be one integer from 1 to 5; nothing is clamped or
    rounded. Returns a `Failure` otherwise, as `parse_rating` does.
    """
    if _RATING.search(text):
        return parse_rating(text, truncated=truncated)
    found = {*_NAMED.findall(text), *_CHINESE.findall(text)} or {
        match[1] for match in [_ALONE.fullmatch(text)] if match
    }
    values = {float(each) for each in found}
    if len(values) == 1 and values <= {1.0, 2.0, 3.0, 4.0, 5.0}:
        return Rated(rating=int(values.pop()), text=text)
    kind = FailureKind.TRUNCATED if truncated and not found else FailureKind.UNPARSED
    return Failure(kind=kind, detail=f"no single rating from 1 to 5 in {_shorten(text)!r}")


PARSERS: Mapping[str, Callable[..., Rated | Failure]] = {
    "answer-rubric": parse_grade,
    "answer-rubric-zh": parse_grade,
}
"""By template id; all other rubrics ask for `[[n]]` and are read by `parse_rating`."""


class Critique(NamedTuple):
    """A critic's score and reason for a document."""

    score: float
    """Relevance, in [0, 1]."""
    reason: str = ""


def parse_critique(text: str, *, truncated: bool) -> Critique | Failure:
    """Parse the score and the reason in a critic's JSON (seed document 004, section 2.1).

    The fields are looked for one by one, as small models wrap JSON in other text, leave its end out and write formulas
    with single backslashes, which no JSON decoder accepts. There must be exactly one distinct score in [0, 1]; nothing
    is clamped. Returns a `Failure` otherwise: TRUNCATED if the token limit ended a text without a score, else UNPARSED.
    """
    found = {float(number) for number in _SCORE.findall(text)}
    if len(found) == 1 and 0 <= (score := found.pop()) <= 1:
        reason = _REASON.search(text)
        return Critique(score, _unescape(reason["reason"]) if reason else "")
    kind = FailureKind.TRUNCATED if truncated and not found else FailureKind.UNPARSED
    return Failure(kind=kind, detail=f"no single `relevance_score` from 0 to 1 in {_shorten(text)!r}")


def _unescape(text: str) -> str:
    """Return the content of a JSON string, or the text itself if it is not valid."""
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except ValueError:
        return text


def _shorten(text: str) -> str:
    return text if len(text) <= _DETAIL_CHARACTERS else text[: _DETAIL_CHARACTERS - 1] + "…"
