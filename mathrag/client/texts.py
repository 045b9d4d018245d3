"""Corpora and datasets: both are uploaded as JSON lines, listed and looked into alike."""

from collections.abc import Iterable
from typing import Literal, TypedDict

from mathrag.client.errors import Failed
from mathrag.client.request import INDEXED_S, Json, Page, Request, segment

Kind = Literal["corpora", "datasets"]
ENTRIES: dict[Kind, str] = {"corpora": "documents", "datasets": "items"}


class Named(TypedDict):
    """A corpus or a dataset."""

    name: str


class Orphans(TypedDict):
    """Indexes that nothing uses."""

    orphans: list[str]
    deleted: bool


def upload(kind: Kind, lines: Iterable[bytes], name: str, **options: str) -> Request[Json]:
    """Store lines under a name; the answer counts what was stored and what was not."""
    query = {"name": name, **options}
    return Request(method="POST", path=f"/v1/{kind}", lines=lines, query=query, timeout_s=INDEXED_S)


def listed(kind: Kind, limit: int | None = None) -> Request[Page[Json]]:
    """Newest first."""
    return Request(path=f"/v1/{kind}", query={"limit": limit})


def get(kind: Kind, name: str) -> Request[Json]:
    """Its counts and the hash of its content."""
    return Request(path=f"/v1/{kind}/{segment(name)}")


def entries(kind: Kind, name: str, limit: int) -> Request[Page[Json]]:
    """Its documents or items, from the first."""
    return Request(path=f"/v1/{kind}/{segment(name)}/{ENTRIES[kind]}", query={"limit": limit})


def index(corpus: str) -> Request[Json]:
    """Build its indexes as the settings are now."""
    return Request(method="POST", path=f"/v1/corpora/{segment(corpus)}/indexes", timeout_s=INDEXED_S)


def contamination(corpus: str, dataset: str) -> Request[Json]:
    """Which questions have their problem in the corpus."""
    query = {"dataset": dataset}
    return Request(path=f"/v1/corpora/{segment(corpus)}/contamination", query=query, timeout_s=INDEXED_S)


def orphans(*, delete: bool = False) -> Request[Orphans]:
    """Indexes on Elasticsearch that nothing uses, before or after they are deleted."""
    return Request(method="DELETE" if delete else "GET", path="/v1/indexes/orphans", timeout_s=INDEXED_S)


def only(corpora: Page[Json]) -> str:
    """The name of the only corpus on a page.

    Raises:
        Failed: there are several, or none.
    """
    there = [str(each["name"]) for each in corpora["data"]]
    if len(there) == 1:
        return there[0]
    if there:
        raise Failed("invalid", f"`corpus`: name one of {', '.join(there)}", hint="or start mathrag mcp --corpus NAME")
    raise Failed("not_found", "there is no corpus", hint="mathrag corpus create")
