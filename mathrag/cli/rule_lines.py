"""Format a rule on one line: `treats(X, Y) <= prescribed(X, Z), contains(Z, Y)`."""

from typing import Any

from shared.pages.lines import format_atom, format_body


def format_rule(rule: Any) -> str:
    """Return the rule as text, head first; variables are X, Y, Z and then V3, V4."""
    return f"{format_atom(rule['head'])} <= {format_body(rule)}"
