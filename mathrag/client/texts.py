"""Requests for corpora and datasets, for training data, and for single questions."""

from collections.abc import Iterable
from typing import Literal, TypedDict

from mathrag.client.errors import Failed
from mathrag.client.request import INDEXED_S, Json, Page, Request, Value, segment

# Requests for corpora and datasets, which are uploaded, listed and inspected in the same way.

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


# The request for training data of a dataset.


def training(dataset: str, rules: str, form: str, **options: Value | None) -> Request[bytes]:
    """Request training data as JSON lines, from the questions that rules of a bank lead to."""
    query = {"rules": rules, "as": form, **options}
    return Request(path=f"/v1/datasets/{segment(dataset)}/training", query=query, timeout_s=INDEXED_S)


# Datasets made from a graph.


class LeftOut(TypedDict):
    """Facts and questions that were left out, by reason."""

    repeated: int
    known: int
    unknown_relation: int
    unknown_entity: int
    many_answers: int
    answered: int
    long: int


class Counts(TypedDict):
    """Numbers of questions."""

    available: int
    answers: int
    answered_by_graph: int
    unnamed_answers: int
    not_after_graph: int
    with_leads: int
    with_documents: int
    left_out: LeftOut


class QuestionSet(TypedDict):
    """A dataset made from a graph, and its sources."""

    name: str
    hash: str
    items: int
    grader: str
    created_at: str
    counts: Counts


def from_graph(name: str, graph: str, lines: Iterable[bytes], **options: Value | None) -> Request[QuestionSet]:
    """Store questions for held-out facts; `options`: `rules`, `limit`, `seed`, `side`, `grader`, `unanswered`."""
    query = {"name": name, "graph": graph, **options}
    return Request(
        method="POST", path="/v1/datasets/from-graph", lines=lines, query=query, timeout_s=INDEXED_S, is_idempotent=True
    )


# Single questions, and plans of jobs that are not submitted.


def plan(body: Json) -> Request[Json]:
    """Request a plan for a job that is not submitted, also for models that do not exist."""
    return Request(method="POST", path="/v1/plan", body=body, is_idempotent=True)


def search(body: Json) -> Request[Json]:
    """Request the documents that match a question."""
    return Request(method="POST", path="/v1/search", body=body, is_idempotent=True)


def chat(body: Json, timeout_s: float | None = None) -> Request[Json]:
    """Request the answer to one question, which runs as a job."""
    return Request(method="POST", path="/v1/chat", body=body, timeout_s=timeout_s)
