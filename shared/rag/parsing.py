"""Reading the judge's reply."""

import re
from collections.abc import Callable, Mapping

from shared.contracts.calls import Failure, FailureKind, Rated

_RATING = re.compile(r"\[\[([0-9]+)\]\]")
_RATINGS = frozenset({"1", "2", "3", "4", "5"})
_DETAIL_CHARACTERS = 120
_NAMED = re.compile(
    r"[\"']?\b(?:rating|score|grade)\b[\"']?\s*(?:is|[:=：])?\s*[\"']?(-?[0-9]+(?:\.[0-9]+)?)", re.IGNORECASE
)
_CHINESE = re.compile(r"(?:评分|分数)\s*(?:是|为|[:：])?\s*(-?[0-9]+(?:\.[0-9]+)?)")
_ALONE = re.compile(r"[^\w-]*(-?[0-9]+(?:\.[0-9]+)?)\s*(?:(?:/|out of)\s*5|分)?\W*", re.IGNORECASE)


def parse_rating(text: str, *, truncated: bool) -> Rated | Failure:
    """The rating in a judge's reply: exactly one distinct `[[1]]` to `[[5]]`, however often it is repeated.

    `[[0]]` and `[[6]]` are no ratings and are not clamped to one; two different numbers are no rating either.
    Returns a `Failure` otherwise: TRUNCATED if the token limit ended a reply that holds no `[[n]]`, else UNPARSED.
    (Seed document 000, section 3.2.2, takes any digit and the first match.)
    """
    found = set(_RATING.findall(text))
    if len(found) == 1 and found <= _RATINGS:
        return Rated(rating=int(found.pop()), text=text)
    kind = FailureKind.TRUNCATED if truncated and not found else FailureKind.UNPARSED
    return Failure(kind=kind, detail=f"no single [[1]] to [[5]] in {_shortened(text)!r}")


def parse_grade(text: str, *, truncated: bool) -> Rated | Failure:
    """The rating in a reply to a rubric: `[[4]]`, else `"rating": 4` in JSON or words, else a number alone (`4/5`).

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
    return Failure(kind=kind, detail=f"no single rating from 1 to 5 in {_shortened(text)!r}")


PARSERS: Mapping[str, Callable[..., Rated | Failure]] = {
    "answer-rubric": parse_grade,
    "answer-rubric-zh": parse_grade,
}
"""By template id; all other rubrics ask for `[[n]]` and are read by `parse_rating`."""


def _shortened(text: str) -> str:
    return text if len(text) <= _DETAIL_CHARACTERS else text[: _DETAIL_CHARACTERS - 1] + "…"
