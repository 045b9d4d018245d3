"""Requests for corpora and datasets, which are uploaded, listed and inspected in the same way."""

from collections.abc import Iterable
from typing import Literal, TypedDict

from mathrag.client.errors import Failed
from mathrag.client.request import INDEXED_S, Json, Page, Request, segment

Kind = Literal["corpora", "datasets"]
ENTRIES: dict[Kind, str] = {"corpora": "documents", "datasets": "items"}


class Named(TypedDict):
    """A corpus or a dataset, by its name."""

    name: str


class Orphans(TypedDict):
    """Indexes that nothing uses, and whether they were deleted."""

    orphans: list[str]
    deleted: bool


def upload(kind: Kind, lines: Iterable[bytes], name: str, **options: str) -> Request[Json]:
    """Request to store lines under a name; the answer counts the stored and the rejected ones."""
    query = {"name": name, **options}
    return Request(method="POST", path=f"/v1/{kind}", lines=lines, query=query, timeout_s=INDEXED_S, is_idempotent=True)


def list_texts(kind: Kind, limit: int | None = None) -> Request[Page[Json]]:
    """Request a page of corpora or datasets, newest first."""
    return Request(path=f"/v1/{kind}", query={"limit": limit})


def get(kind: Kind, name: str) -> Request[Json]:
    """Request the counts and the content hash."""
    return Request(path=f"/v1/{kind}/{segment(name)}")


def entries(kind: Kind, name: str, limit: int) -> Request[Page[Json]]:
    """Request the first documents or items."""
    return Request(path=f"/v1/{kind}/{segment(name)}/{ENTRIES[kind]}", query={"limit": limit})


def index(corpus: str) -> Request[Json]:
    """Request to build the indexes that the current settings ask for."""
    return Request(
        method="POST", path=f"/v1/corpora/{segment(corpus)}/indexes", timeout_s=INDEXED_S, is_idempotent=True
    )


def contamination(corpus: str, dataset: str) -> Request[Json]:
    """Request which questions of the dataset the corpus contains."""
    query = {"dataset": dataset}
    return Request(path=f"/v1/corpora/{segment(corpus)}/contamination", query=query, timeout_s=INDEXED_S)


def orphans(*, delete: bool = False) -> Request[Orphans]:
    """Request the unused indexes on Elasticsearch, or request to delete them."""
    return Request(method="DELETE" if delete else "GET", path="/v1/indexes/orphans", timeout_s=INDEXED_S)


def only(corpora: Page[Json]) -> str:
    """Return the name of the only corpus on a page.

    Raises:
        Failed: there are several, or none.
    """
    there = [str(each["name"]) for each in corpora["data"]]
    if len(there) == 1:
        return there[0]
    if there:
        raise Failed(
            "invalid", f"`corpus` is missing: name one of {', '.join(there)}", hint="or start mathrag mcp --corpus NAME"
        )
    raise Failed("not_found", "there is no corpus", hint="create one: mathrag corpus create")
