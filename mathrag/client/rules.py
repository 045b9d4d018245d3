"""Requests for rule banks: mine, import, export, inspect and delete."""

from collections.abc import Iterable
from typing import TypedDict

from mathrag.client.request import INDEXED_S, Json, Page, Request, Value, segment

PATH = "/v1/rules"
CONTENT = {"content-type": "application/octet-stream"}
"""The server tells the format from the first line."""


class RuleBank(TypedDict):
    """A bank as it is now."""

    name: str
    state: str
    hash: str | None
    graph: str | None
    miner: str
    limits: Json
    relations: int | None
    rules: int
    job: str | None
    reason: str | None


class MinedBank(RuleBank):
    """A bank that was asked for, and what mining it takes."""

    memory_mib: int


def at(name: str) -> str:
    """Return the path of a rule bank."""
    return f"{PATH}/{segment(name)}"


def mine(name: str, graph: str, mining: Json) -> Request[MinedBank]:
    """Request the bank of these rules, and start a job that mines it if there is none."""
    body = {"name": name, "graph": graph, "mining": mining}
    return Request(method="POST", path=PATH, body=body, timeout_s=INDEXED_S, is_idempotent=True)


def list_rule_banks(limit: int | None = None) -> Request[Page[RuleBank]]:
    """Request a page of rule banks, newest first."""
    return Request(path=PATH, query={"limit": limit})


def get(name: str) -> Request[RuleBank]:
    """Request the present state of a bank."""
    return Request(path=at(name))


def rules(name: str, limit: int | None = None, **only: Value | None) -> Request[Page[Json]]:
    """Request rules in the bank's order; `only` has filters such as `head="treats"` or `min_confidence="0.5"`."""
    return Request(path=f"{at(name)}/rules", query={"limit": limit, **only})


def delete(name: str) -> Request[RuleBank]:
    """Delete a bank with its rules."""
    return Request(method="DELETE", path=at(name))


def import_bank(
    name: str,
    content: Iterable[bytes],
    graph: str | None = None,
    format: str = "auto",  # noqa: A002 - what the API calls it
) -> Request[RuleBank]:
    """Request to store the rules of a file as a bank; if given, `graph` must have all their relations."""
    return Request(
        method="POST",
        path=f"{PATH}/import",
        lines=content,
        query={"name": name, "format": format, "graph": graph},
        headers=CONTENT,
        timeout_s=INDEXED_S,
        is_idempotent=True,
    )


def export_bank(name: str, format: str) -> Request[bytes]:  # noqa: A002 - what the API calls it
    """Request a bank as a file in AMIE's format or in ours."""
    return Request(path=f"{at(name)}/export", query={"format": format}, timeout_s=INDEXED_S)
