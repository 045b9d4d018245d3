"""Serves `/v1/graphs`: uploads knowledge graphs, each of which is also a corpus."""

from collections.abc import Iterator
from contextlib import aclosing
from typing import IO, Annotated, Any

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response

from mathrag.reading import graph_paths
from mathrag.reading.lines import Row
from services.orchestrator.api.corpora import build_indexes
from services.orchestrator.api.routes import Limit, answers, json, route
from services.orchestrator.api.uploads import SOURCE, get_media_type, read_in_thread, spool
from services.orchestrator.deps import RequestDeps
from shared.ingest import facts
from shared.settings import Limits
from shared.shapes import Scope
from shared.storage import corpora, database, graphs

router = APIRouter(prefix="/v1/graphs", tags=["graphs"])

ARE_JSON = {
    "application/x-ndjson": True,
    "application/jsonl": True,
    "text/tab-separated-values": False,
    "text/plain": False,
}
"""Whether facts of a media type are JSON; for other media types the first character of the body decides."""
LINES = (
    '{"relation": "Make_statement", "phrase": "made a statement to", "inverse": "was told by"}\n'
    '{"subject": "Malaysia", "relation": "Make_statement", "object": "China", "time": "2014-11-10"}\n'
)
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "text/tab-separated-values": {
                "schema": {"type": "string"}, "example": "Malaysia\tMake_statement\tChina\t2014-11-10\n",
            },
            "application/x-ndjson": {"schema": {"type": "string"}, "example": LINES},
            "application/gzip": {"schema": {"type": "string", "format": "binary"}, "example": "…"},
        },
    }
}  # fmt: skip


class GraphUpload(graphs.StoredGraph, frozen=True, kw_only=True):
    """The graph, and counts of the upload."""

    repeated: int
    """Number of facts that were left out because they were repeated in the upload."""
    documents: int
    """Number of documents in the corpus."""


class DeletedGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The deleted graph, and its corpus, which still exists."""

    deleted: str
    """Name of the deleted graph."""
    corpus: str
    """Name of the graph's corpus, which still exists."""
    hint: str
    """Command that deletes the corpus."""


@route(
    router, "POST", "", Scope.SUBMIT, "Upload a graph",
    answers(GraphUpload) | answers(GraphUpload, status=201),
    refuses=(409, 429), status_code=201, openapi_extra=BODY,
)  # fmt: skip
async def create(
    request: Request,
    deps: RequestDeps,
    name: Annotated[str, Query(examples=["icews14"])],
    inverse: Annotated[bool, Query(description="Add a document for the inverse of each fact.")] = False,  # noqa: FBT002
) -> Response:
    """Uploads facts as tab-separated lines of subject, relation, object and optionally time, or as JSON lines; both
    may be compressed with gzip (docs/how-to/knowledge-graphs.md). Answers when the graph and its corpus of the
    same name can be used.

    Answers 201, or 200 if the graph exists with the same facts. An unusable line rejects the whole upload.
    """
    limits = deps.settings.limits
    async with spool(request, limits) as file, deps.graph_reading:
        read = await to_thread.run_sync(
            lambda: facts.read_facts(open_fact_lines(file, request, limits), SOURCE, limits.upload_rows)
        )
        async with aclosing(read_in_thread(facts.documents(read.upload, inverse=inverse))) as documents:
            created = await graphs.create(deps.database, name, read.upload, documents)
    corpus = await corpora.get(deps.database, created.graph.corpus)
    await build_indexes(request, deps, corpus)
    answer = GraphUpload(**msgspec.structs.asdict(created.graph), repeated=read.repeated, documents=corpus.documents)
    return json(answer, 201 if created.new else 200, {"Location": f"/v1/graphs/{name}"})


def open_fact_lines(file: IO[bytes], request: Request, limits: Limits) -> Iterator[Row]:
    """Read the lines of an upload of facts, in the format of its Content-Type or its first character.

    Raises:
        Invalid: the body is a form.
        InvalidLine, TooLarge: as `fact_rows.read` raises them.
    """
    are_json = ARE_JSON.get(get_media_type(request))
    return graph_paths.read_fact_rows(
        file, SOURCE, are_json=are_json, longest=limits.line_bytes, decompressed=limits.decompressed_bytes
    )


@route(router, "GET", "", Scope.READ, "List graphs", answers(database.Page[graphs.StoredGraph]), name="listed")
async def list_graphs(deps: RequestDeps, limit: Limit = database.DEFAULT, cursor: str | None = None) -> Response:
    """Lists the graphs, newest first."""
    return json(await graphs.list_graphs(deps.database, limit, cursor))


@route(router, "GET", "/{name}", Scope.READ, "Get a graph", answers(graphs.StoredGraph), refuses=(404,))
async def get(deps: RequestDeps, name: str) -> Response:
    """Returns a graph with its counts, times and hash, and the relations with most facts."""
    return json(await graphs.get(deps.database, name))


@route(router, "DELETE", "/{name}", Scope.SUBMIT, "Delete a graph", answers(DeletedGraph), refuses=(404, 409))
async def delete(deps: RequestDeps, name: str) -> Response:
    """Deletes a graph. Its corpus remains and can still be used. Answers 409 if a rule bank was mined from the
    graph.
    """
    graph = await graphs.delete(deps.database, name)
    hint = f"mathrag corpus delete {graph.corpus}"
    return json(DeletedGraph(deleted=graph.name, corpus=graph.corpus, hint=hint))
