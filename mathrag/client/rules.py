"""Rule banks: mined, looked at, deleted."""

from typing import TypedDict

from mathrag.client.request import INDEXED_S, Json, Page, Request, segment

PATH = "/v1/rules"


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
    """The path of a bank."""
    return f"{PATH}/{segment(name)}"


def mine(name: str, graph: str, mining: Json) -> Request[MinedBank]:
    """The bank of these rules, with a job that mines it where it has none."""
    body = {"name": name, "graph": graph, "mining": mining}
    return Request(method="POST", path=PATH, body=body, timeout_s=INDEXED_S)


def listed(limit: int | None = None) -> Request[Page[RuleBank]]:
    """Newest first."""
    return Request(path=PATH, query={"limit": limit})


def get(name: str) -> Request[RuleBank]:
    """The bank as it is now."""
    return Request(path=at(name))


def rules(name: str, limit: int | None = None, **only: str | None) -> Request[Page[Json]]:
    """In the bank's order; `only`: `head="treats"`, `min_confidence="0.5"`."""
    return Request(path=f"{at(name)}/rules", query={"limit": limit, **only})


def delete(name: str) -> Request[RuleBank]:
    """Delete a bank with its rules."""
    return Request(method="DELETE", path=at(name))
