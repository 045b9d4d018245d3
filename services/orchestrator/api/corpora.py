"""Serves `/v1/corpora`, and the indexes that no corpus uses."""

from collections.abc import Awaitable
from contextlib import aclosing, suppress
from typing import Annotated

import httpx2
import msgspec
from fastapi import APIRouter, Path, Query, Request, Response

from mathrag.errors import Unavailable
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.routes import Limit, answers, json, route
from services.orchestrator.api.uploads import BODY, Rejected, Uploaded, read_batches, report_rejections
from services.orchestrator.deps import Deps, RequestDeps
from services.orchestrator.reports import leaks
from shared.access.connections import finish_while_connected
from shared.models.retriever_client import Indexes, NoReply, Orphans, RetrieverClient
from shared.shapes import Scope
from shared.storage import corpora, database, datasets

router = APIRouter(prefix="/v1/corpora", tags=["corpora"])


class CorpusUpload(corpora.Corpus, frozen=True, kw_only=True):
    """The corpus, and the lines of the upload that were left out."""

    skipped: int
    """Lines without text that were left out; counted only with `skip_empty`."""
    rejected: int
    """Lines that could not be used; counted only with `on_error=skip`."""
    rejected_lines: list[Rejected]
    """The first rejected lines, with the reason."""


@route(
    router, "POST", "", Scope.SUBMIT, "Upload a corpus",
    answers(CorpusUpload) | answers(CorpusUpload, status=201),
    refuses=(409, 429), status_code=201, openapi_extra=BODY,
)  # fmt: skip
async def create(
    request: Request, deps: RequestDeps, name: Annotated[str, Query(examples=["math"])], upload: Uploaded
) -> Response:
    """Uploads documents as JSON lines, a JSON array, CSV or Parquet, with the fields `text` (or `contents`,
    `solution`) and optionally `problem`, `id`, `subject` and `level` (docs/how-to/api.md#uploads). Answers when
    both indexes are built.

    Answers 201, or 200 if the corpus exists with the same documents. An unusable line rejects the whole upload;
    with `on_error=skip` the service leaves out these lines.
    """
    async with upload.read_documents() as reader, aclosing(read_batches(reader)) as records:
        created = await corpora.create(deps.database, name, records)
    # This also repairs a known corpus: sound indexes are kept, missing ones are built.
    await build_indexes(request, deps, created.corpus)
    stored = await corpora.get(deps.database, name)
    answer = CorpusUpload(**msgspec.structs.asdict(stored), **report_rejections(reader))
    return json(answer, 201 if created.new else 200, {"Location": f"/v1/corpora/{name}"})


@route(router, "POST", "/{name}/indexes", Scope.SUBMIT, "Build a corpus's indexes", answers(Indexes), refuses=(404,))
async def index(request: Request, deps: RequestDeps, name: str) -> Response:
    """Builds the indexes that the current settings and the documents require, if they are missing or damaged.

    Use it after a change of embedder, tokenizer or back end: indexes that were built with the old settings are refused.
    """
    return json(await build_indexes(request, deps, await corpora.get(deps.database, name)))


async def build_indexes(request: Request, deps: Deps, corpus: corpora.Corpus) -> Indexes:
    """Have the retriever build both indexes, as long as the client waits for them.

    Raises:
        BadRequest: the client has closed the connection.
        Unavailable: the retriever did not build them. The documents stay stored; the same upload resumes here.
    """
    try:
        work = RetrieverClient(deps.http, deps.settings).build_indexes(corpus.id)
        return await finish_while_connected(request, work)
    except NoReply as error:
        problem = error.problem
        if error.status in (httpx2.codes.SERVICE_UNAVAILABLE, httpx2.codes.UNPROCESSABLE_CONTENT) and problem.detail:
            raise Unavailable(f"corpus {corpus.name!r} is stored, but {problem.detail}", hint=problem.hint) from error
        raise Unavailable(
            f"corpus {corpus.name!r} is stored, but its indexes could not be built ({error.cause})",
            hint="see GET /readyz and the retriever's log; then run `mathrag corpus index NAME`, or repeat the upload",
        ) from error


@route(router, "GET", "", Scope.READ, "List corpora", answers(database.Page[corpora.Corpus]), name="listed")
async def list_corpora(deps: RequestDeps, limit: Limit = database.DEFAULT, cursor: str | None = None) -> Response:
    """Lists the corpora, newest first."""
    return json(await corpora.list_corpora(deps.database, limit, cursor))


@route(router, "GET", "/{name}", Scope.READ, "Get a corpus", answers(corpora.CorpusDetails), refuses=(404,))
async def get(deps: RequestDeps, name: str) -> Response:
    """Returns a corpus with its indexes, their recipes, the progress of builds, and the lengths of its texts."""
    found = await corpora.load_details(deps.database, name)
    with suppress(NoReply):  # the field stays null; GET /readyz reports the retriever
        builds = await RetrieverClient(deps.http, deps.settings).list_builds(found.id)
        found = msgspec.structs.replace(found, builds=builds)
    return json(found)


@route(
    router, "GET", "/{name}/contamination", Scope.READ, "Scan for leaked answers",
    answers(leaks.Leaks), refuses=(404,),
)  # fmt: skip
async def contamination(
    name: str,
    deps: RequestDeps,
    dataset: Annotated[
        str, Query(description="Dataset whose questions are compared with the documents.", examples=["math-500"])
    ],
) -> Response:
    """Counts the questions of a dataset whose own problem is in the corpus, identical or as a near-duplicate, and
    gives examples (docs/explanation/statistics.md#contamination).

    By default, the searches of jobs leave out documents with the same problem, and near-duplicates with the same
    answer (parameter `duplicates`). Every question is compared with every document, which takes seconds for
    thousands of documents.
    """
    return json(await leaks.scan(deps.database, name, dataset))


@route(
    router, "GET", "/{name}/documents", Scope.READ, "List a corpus's documents",
    answers(database.Page[datasets.DocumentPreview]), refuses=(404,),
)  # fmt: skip
async def documents(
    deps: RequestDeps, name: str, limit: Limit = database.DEFAULT, cursor: str | None = None
) -> Response:
    """Lists the documents in the corpus's order, page by page; texts are cut at 4,000 characters."""
    return json(await datasets.list_documents(deps.database, name, limit, cursor))


@route(
    router, "GET", "/{name}/documents/{document}", Scope.READ, "Get a document of a corpus",
    answers(corpora.CorpusDocument), refuses=(404,),
)  # fmt: skip
async def document(
    deps: RequestDeps, name: str, document: Annotated[str, Path(max_length=200, examples=["9f2c41d0"])]
) -> Response:
    """Returns the document with this hash in full, with all its positions in the corpus."""
    return json(await corpora.load_document(deps.database, name, document))


# Serves `/v1/indexes/orphans`: indexes on Elasticsearch that no corpus uses.

orphans_router = APIRouter(prefix="/v1/indexes/orphans", tags=["corpora"])


@route(orphans_router, "GET", "", Scope.READ, "List unused indexes", answers(Orphans))
async def list_orphans(deps: RequestDeps) -> Response:
    """Lists the indexes that interrupted builds, or a database that was replaced, left on Elasticsearch
    (docs/how-to/retrieval.md#back-ends).

    Only indexes whose name has the form PREFIX-KIND-SIGNATURE are considered. Those that are being built are left out.
    """
    return await _answer(RetrieverClient(deps.http, deps.settings).list_orphans())


@route(
    orphans_router, "DELETE", "", Scope.OPERATE, "Delete unused indexes",
    answers(Orphans, make_example(Orphans, deleted=True)),
)  # fmt: skip
async def delete_orphans(deps: RequestDeps) -> Response:
    """Deletes the indexes that `GET /v1/indexes/orphans` lists, permanently.

    If another database's retriever uses the same prefix, its indexes would be deleted too: give each retriever its own
    prefix.
    """
    return await _answer(RetrieverClient(deps.http, deps.settings).delete_orphans())


async def _answer(asked: Awaitable[Orphans]) -> Response:
    """Return the retriever's answer.

    Raises:
        Unavailable: the retriever does not answer.
    """
    try:
        return json(await asked)
    except NoReply as error:
        if error.status == httpx2.codes.SERVICE_UNAVAILABLE and error.problem.detail:
            raise Unavailable(error.problem.detail, hint=error.problem.hint) from error
        hint = "see GET /readyz and the retriever's log"
        raise Unavailable(f"the retriever did not list its indexes ({error.cause})", hint=hint) from error
