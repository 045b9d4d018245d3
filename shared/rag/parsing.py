"""Reading the judge's reply."""

import re

from shared.contracts.calls import Failure, FailureKind, Rated

_RATING = re.compile(r"\[\[([0-9]+)\]\]")
_RATINGS = frozenset({"1", "2", "3", "4", "5"})
_DETAIL_CHARACTERS = 120


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


def _shortened(text: str) -> str:
    return text if len(text) <= _DETAIL_CHARACTERS else text[: _DETAIL_CHARACTERS - 1] + "…"
