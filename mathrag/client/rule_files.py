"""Requests that import and export rule banks as files."""

from collections.abc import Iterable

from mathrag.client.request import INDEXED_S, Request
from mathrag.client.rules import PATH, RuleBank, at

CONTENT = {"content-type": "application/octet-stream"}
"""The server detects the format from the first lines."""


def import_bank(name: str, content: Iterable[bytes], format: str, graph: str | None = None) -> Request[RuleBank]:  # noqa: A002
    """Request to store the rules of a file as a bank; if given, `graph` must have all their relations."""
    query = {"name": name, "format": format, "graph": graph}
    return Request(
        method="POST",
        path=f"{PATH}/import",
        lines=content,
        query=query,
        headers=CONTENT,
        timeout_s=INDEXED_S,
        is_idempotent=True,
    )


def export_bank(name: str, format: str) -> Request[bytes]:  # noqa: A002 - what the API calls it
    """Request a bank as a file in AMIE's format or in ours."""
    return Request(path=f"{at(name)}/export", query={"format": format}, timeout_s=INDEXED_S)
