"""Parse the judge's replies, without what a model thinks aloud before them.

A rating is a whole number from 1 to 5. One on another scale (4/10, 80%), a range (3-4) and a fraction (4.5) are none:
nothing is converted, rounded, clamped or guessed, and the reply is unreadable.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from shared.mathtext.reasoning_blocks import remove_reasoning
from shared.replies import Failure, FailureKind, Rated

_DETAIL_CHARACTERS = 120
_RATING = re.compile(r"([1-5])(?:\.0+)?")
_MARKS = r"""[ \t"'“”*_`()\[\]]{0,8}"""
"""Quotes, brackets and Markdown around a number."""
_DIGITS = r"[-+]?[0-9]+(?:[.,][0-9]+)?"
_UNIT = rf"(?:(?:points?|stars?|分|颗?星){_MARKS})?"
_OUT_OF = (
    r"(?:[/⁄]|out of[^\d\n]{0,20}?|of\b|,? ?(?:满分|总分)[^\d\n]{0,4}"
    r"|(?:on )?(?:an? |the )?scale\b[^\d\n]{0,12}(?:\d+ ?(?:-|–|~|to|到|至) ?)?)"
)
_TO = r"(?:[-–—−~〜]|to\b|or\b|[到至或])"
_BEHIND = rf"{_MARKS}{_UNIT}(?:%|per ?cent|(?:{_OUT_OF}|{_TO}){_MARKS}{_DIGITS})"
"""What makes the number before it another one: a scale, a range or a percentage."""
_OUT_OF_FIVE = re.compile(rf"{_MARKS}{_UNIT}{_OUT_OF}{_MARKS}5(?:\.0+)?", re.IGNORECASE)
_VALUE = rf"(?P<number>{_DIGITS})(?P<behind>{_BEHIND})?"
_BRACKETED = re.compile(rf"\[\[\s*{_VALUE}{_UNIT}\s*\]\](?P<after>{_BEHIND})?", re.IGNORECASE)
_NAME = r"(?:(?<![a-z])(?:rating|score|grade)(?![a-z])|评分|打分|得分|给分|分数)"
_JSON = re.compile(rf"""{_NAME}["'“”]\s*:\s*["'“]?{_VALUE}""", re.IGNORECASE)
_GAP = r"[^\w.,;!?%+−-]{0,12}"
_NAMED = re.compile(
    rf"{_NAME}(?:\s*[(\[](?P<scale>[^()\[\]\n]{{1,40}})[)\]][*_]*\s*(?::|=|is\b))?"
    rf"{_GAP}(?:(?:is|of|as|would be|should be|[是为给]){_GAP})?(?:[-–—]\s+)?{_VALUE}",
    re.IGNORECASE,
)
_ALONE = re.compile(rf"[^\w+−-]*{_VALUE}(?:\s*(?:points?|stars?|分|颗?星))?\W*", re.IGNORECASE)
_WHOLE = re.compile(r".*[,;}\n!?.。](?=\D)", re.DOTALL)
"""Up to the last sign that ends a number: what follows may go on behind the token limit."""
_NUMBER = r"-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?"
# A number that the token limit may have cut has nothing behind it.
_SCORE = re.compile(rf"""["']relevance_score["']\s*:\s*["']?({_NUMBER})["']?\s*[,}}\n]""")
_REASON = re.compile(r""""reasoning"\s*[:：]\s*"(?P<reason>(?:[^"\\]|\\.)*)""", re.DOTALL)


def parse_rating(text: str, *, truncated: bool) -> Rated | Failure:
    """Find the rating in a judge's reply: exactly one distinct `[[1]]` to `[[5]]`, however often it is repeated.

    Blanks and full-width characters, `[[4.0]]` and `[[4/5]]` are read, too. Two different numbers are no rating: the
    prompts ask for one, not for the last one, so its place settles nothing.
    Returns a `Failure` otherwise: TRUNCATED if the token limit ended a reply that holds no `[[n]]`, else UNPARSED.
    (Seed document 000, section 3.2.2, takes any digit and the first match.)
    """
    found = list(_BRACKETED.finditer(_read_characters(text)))
    return _agree(found, text, "no single [[1]] to [[5]]", truncated=truncated)


def parse_grade(text: str, *, truncated: bool) -> Rated | Failure:
    """Read the rating in a reply to a rubric: `[[4]]`, else `"rating": 4` in JSON, else in words, else a number alone.

    All ratings that stand there in the first of these forms must be one and the same; `4/5` and `4 out of 5` are 4.
    Returns a `Failure` otherwise, as `parse_rating` does; a number at which the token limit ended the reply is none,
    as 4 may be the beginning of 4/10.
    """
    read = _read_characters(text)
    if _BRACKETED.search(read):
        return parse_rating(text, truncated=truncated)
    if truncated:
        whole = _WHOLE.match(read)
        read = whole[0] if whole else ""
    found = list(_JSON.finditer(read)) or list(_NAMED.finditer(read)) or list(filter(None, [_ALONE.fullmatch(read)]))
    return _agree(found, text, "no single rating from 1 to 5", truncated=truncated)


def _read_characters(text: str) -> str:
    """Return the reply itself, with full-width characters as plain ones."""
    return unicodedata.normalize("NFKC", remove_reasoning(text))


def _agree(found: Iterable[re.Match[str]], text: str, problem: str, *, truncated: bool) -> Rated | Failure:
    ratings = {_read_value(match) for match in found}
    if len(ratings) == 1 and (rating := next(iter(ratings))) is not None:
        return Rated(rating=rating, text=text)
    kind = FailureKind.TRUNCATED if truncated and not ratings else FailureKind.UNPARSED
    return Failure(kind=kind, detail=f"{problem} in {_shorten(text)!r}")


def _read_value(match: re.Match[str]) -> int | None:
    """Return the rating from 1 to 5, or None for a number that is none."""
    groups = match.groupdict()
    said = [groups[name] for name in ("behind", "after") if groups.get(name)]
    scale = [float(number) for number in re.findall(r"[0-9]+(?:\.[0-9]+)?", groups.get("scale") or "")]
    number = _RATING.fullmatch(match["number"])
    if number is None or not all(map(_OUT_OF_FIVE.fullmatch, said)) or (scale and max(scale) != 5):
        return None
    return int(number[1])


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
    found = {float(number) for number in _SCORE.findall(_read_characters(text))}
    if len(found) == 1 and 0 <= (score := found.pop()) <= 1:
        reason = _REASON.search(remove_reasoning(text))
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
