"""Requests for knowledge graphs, which are uploaded as JSON lines of facts and phrases."""

from collections.abc import Iterable

from mathrag.client.request import INDEXED_S, Json, Page, Request, segment

PATH = "/v1/graphs"


def upload(lines: Iterable[bytes], name: str, *, inverse: bool = False) -> Request[Json]:
    """Store facts under a name; the server answers when the graph and its corpus are ready."""
    return Request(
        method="POST", path=PATH, lines=lines, query={"name": name, "inverse": inverse}, timeout_s=INDEXED_S,
        is_idempotent=True,
    )  # fmt: skip


def list_graphs() -> Request[Page[Json]]:
    """List all graphs, newest first."""
    return Request(path=PATH)


def get(name: str) -> Request[Json]:
    """Fetch counts, times and hash of a graph, and its most frequent relations."""
    return Request(path=f"{PATH}/{segment(name)}")


def delete(name: str) -> Request[Json]:
    """Delete a graph; its corpus is kept."""
    return Request(method="DELETE", path=f"{PATH}/{segment(name)}")
