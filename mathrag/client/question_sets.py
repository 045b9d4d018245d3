"""Datasets made from a graph."""

from collections.abc import Iterable
from typing import TypedDict

from mathrag.client.request import INDEXED_S, Request, Value


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
