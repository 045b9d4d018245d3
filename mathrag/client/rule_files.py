"""Rule banks as files."""

from collections.abc import Iterable

from mathrag.client.request import INDEXED_S, Request
from mathrag.client.rules import PATH, RuleBank, at

CONTENT = {"content-type": "application/octet-stream"}
"""Whose file it is, its first lines say."""


def imported(name: str, content: Iterable[bytes], format: str, graph: str | None = None) -> Request[RuleBank]:  # noqa: A002
    """Store the rules of a file under a name; `graph` must have all relations that they name."""
    query = {"name": name, "format": format, "graph": graph}
    return Request(
        method="POST", path=f"{PATH}/import", lines=content, query=query, headers=CONTENT, timeout_s=INDEXED_S
    )


def exported(name: str, format: str) -> Request[bytes]:  # noqa: A002 - what the API calls it
    """A bank as a file of AMIE's or our own."""
    return Request(path=f"{at(name)}/export", query={"format": format}, timeout_s=INDEXED_S)
