"""A rule on one line: `treats(X, Y) <= prescribed(X, Z), contains(Z, Y)`."""

from typing import Any

VARIABLES = "XYZ"


def line(rule: Any) -> str:
    """The rule, head first; variables are X, Y, Z and then V3, V4."""
    return f"{_atom(rule['head'])} <= {', '.join(map(_atom, rule['body']))}"


def _atom(atom: Any) -> str:
    relation, subject, object_ = atom
    return f"{relation}({_term(subject)}, {_term(object_)})"


def _term(term: int | str) -> str:
    if isinstance(term, str):
        return term
    return VARIABLES[term] if term < len(VARIABLES) else f"V{term}"
