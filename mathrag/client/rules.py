"""Requests for rule banks: mine, import, export, inspect and delete."""

from collections.abc import Iterable
from typing import Literal

from mathrag.client.request import INDEXED_S, Json, Page, Request, segment

PATH = "/v1/rules"
CONTENT = {"content-type": "application/octet-stream"}
"""Format of an import; by default, the server detects it from the first line."""


def make_path(name: str) -> str:
    """Return the path of a rule bank."""
    return f"{PATH}/{segment(name)}"


def mine(name: str, graph: str, miner: Literal["amie", "tlogic"], **limits: object) -> Request[Json]:
    """Mine a rule bank with a job, whose id is `job` in the answer; a repeated request returns the same bank.

    Args:
        name: name of the bank.
        graph: name of the graph to mine.
        miner: name of the mining method.
        limits: limits of the miner, such as `min_support=2`.
    """
    body = {"name": name, "graph": graph, "mining": {"miner": miner, **limits}}
    return Request(method="POST", path=PATH, body=body, timeout_s=INDEXED_S, is_idempotent=True)


def list_rule_banks() -> Request[Page[Json]]:
    """List all rule banks, newest first."""
    return Request(path=PATH)


def get(name: str) -> Request[Json]:
    """Fetch the state, limits and hash of a bank, and the relations that its rules predict."""
    return Request(path=make_path(name))


def delete(name: str) -> Request[Json]:
    """Delete a bank with its rules."""
    return Request(method="DELETE", path=make_path(name))


def list_rules(
    name: str,
    *,
    head: str | None = None,
    min_confidence: float | None = None,
    min_support: int | None = None,
    order: Literal["bank", "confidence"] = "bank",
) -> Request[Page[Json]]:
    """List the rules of a bank, filtered by head relation, smallest confidence and smallest support."""
    filters = {"head": head, "min_confidence": min_confidence, "min_support": min_support}
    # The server's own default is not sent.
    return Request(path=f"{make_path(name)}/rules", query={**filters, "order": None if order == "bank" else order})


def import_bank(
    name: str,
    content: Iterable[bytes],
    graph: str | None = None,
    format: str = "auto",  # noqa: A002 - the API's name
) -> Request[Json]:
    """Store the rules of a file as a bank; `graph`, if given, must have all their relations."""
    return Request(
        method="POST", path=f"{PATH}/import", lines=content, query={"name": name, "format": format, "graph": graph},
        headers=CONTENT, timeout_s=INDEXED_S, is_idempotent=True,
    )  # fmt: skip


def export_bank(name: str, *, format: Literal["json", "amie"] = "json") -> Request[bytes]:  # noqa: A002
    """Download all rules of a bank as JSON lines or in AMIE's columns."""
    return Request(path=f"{make_path(name)}/export", query={"format": format}, timeout_s=INDEXED_S)
