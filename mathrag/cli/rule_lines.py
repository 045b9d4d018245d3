"""A rule on one line: `treats(X, Y) <= prescribed(X, Z), contains(Z, Y)`."""

from typing import Any

from shared.pages.rule_lines import atom, body


def line(rule: Any) -> str:
    """The rule, head first; variables are X, Y, Z and then V3, V4."""
    return f"{atom(rule['head'])} <= {body(rule)}"
