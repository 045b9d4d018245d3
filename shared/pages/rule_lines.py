"""Rules on a line: `prescribed(X, Z)`, its variables X, Y, Z and then V3, V4."""

from collections.abc import Sequence
from typing import Any

VARIABLES = "XYZ"


def body(rule: Any) -> str:
    """What has to hold, such as `prescribed(X, Z), contains(Z, Y)`."""
    return ", ".join(map(atom, rule["body"]))


def atom(said: Sequence[Any]) -> str:
    """A relation and its two terms, such as `treats(X, Y)`."""
    relation, subject, object_ = said
    return f"{relation}({_term(subject)}, {_term(object_)})"


def _term(term: int | str) -> str:
    if isinstance(term, str):
        return term
    return VARIABLES[term] if term < len(VARIABLES) else f"V{term}"
