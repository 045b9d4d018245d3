"""Write a rule on one line: `prescribed(X, Z)`, with the variables X, Y, Z and then V3, V4."""

from collections.abc import Sequence
from typing import Any

VARIABLES = "XYZ"


def format_body(rule: Any) -> str:
    """Return what must hold, such as `prescribed(X, Z), contains(Z, Y)`."""
    return ", ".join(map(format_atom, rule["body"]))


def format_atom(said: Sequence[Any]) -> str:
    """Return a relation and its two terms, such as `treats(X, Y)`."""
    relation, subject, object_ = said
    return f"{relation}({_format_term(subject)}, {_format_term(object_)})"


def _format_term(term: int | str) -> str:
    if isinstance(term, str):
        return term
    return VARIABLES[term] if term < len(VARIABLES) else f"V{term}"
