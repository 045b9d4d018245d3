"""Requests for knowledge graphs, which are uploaded as JSON lines of facts and phrases."""

from collections.abc import Iterable
from typing import TypedDict

from mathrag.client.request import INDEXED_S, Page, Request, segment


class RelationSize(TypedDict):
    """A relation and its number of facts."""

    relation: str
    facts: int


class Graph(TypedDict):
    """A graph."""

    name: str
    hash: str
    facts: int
    entities: int
    relations: int
    time_unit: str | None
    first_time: str | None
    last_time: str | None
    largest: list[RelationSize]
    corpus: str
    created_at: str


class GraphUpload(Graph):
    """A graph, and what became of its upload."""

    repeated: int
    documents: int


class Deleted(TypedDict):
    """What is gone, and which corpus is left."""

    deleted: str
    corpus: str
    hint: str


def upload(lines: Iterable[bytes], name: str, *, inverse: bool = False) -> Request[GraphUpload]:
    """Store facts under a name; the answer comes when graph and corpus can be used."""
    query = {"name": name, "inverse": str(inverse).lower()}
    return Request(method="POST", path="/v1/graphs", lines=lines, query=query, timeout_s=INDEXED_S, is_idempotent=True)


def list_graphs(limit: int | None = None) -> Request[Page[Graph]]:
    """Request a page of graphs, newest first."""
    return Request(path="/v1/graphs", query={"limit": limit})


def get(name: str) -> Request[Graph]:
    """Request the counts, times and hash of a graph."""
    return Request(path=f"/v1/graphs/{segment(name)}")


def delete(name: str) -> Request[Deleted]:
    """Delete it; its corpus stays."""
    return Request(method="DELETE", path=f"/v1/graphs/{segment(name)}")
