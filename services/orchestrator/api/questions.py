"""Serves `POST /v1/datasets/from-graph`: makes a dataset of questions from a graph and facts held out from it."""

import tempfile
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from itertools import islice
from typing import IO, Annotated, Any, Literal

import msgspec
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response

from services.orchestrator.api.datasets import EXAMPLE
from services.orchestrator.api.graphs import open_fact_lines
from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import json, route
from services.orchestrator.api.uploads import BATCH, SOURCE, spool
from services.orchestrator.deps import RequestDeps
from shared.errors import Conflict, Invalid
from shared.ingest import facts
from shared.questions.items import SIDES, Bank, Choice, Counts, Grader, QuestionSet, Wording
from shared.rules.graph import Graph
from shared.samples import DatasetItem
from shared.settings import Limits
from shared.shapes import Scope
from shared.storage import datasets, graphs
from shared.storage import rules as stored_rules
from shared.storage.database import Database
from shared.storage.graphs import GraphFacts, StoredGraph

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

TEMPLATE = (
    '{"relation": "Make_statement", "object_question": "To whom did {subject} make a statement?",'
    ' "subject_question": "Who made a statement to {object}?"}\n'
)
FACT = '{"subject": "Malaysia", "relation": "Make_statement", "object": "China", "time": "2014-11-11"}\n'
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "text/tab-separated-values": {
                "schema": {"type": "string"}, "example": "Malaysia\tMake_statement\tChina\t2014-11-11\n",
            },
            "application/x-ndjson": {"schema": {"type": "string"}, "example": TEMPLATE + FACT},
            "application/gzip": {"schema": {"type": "string", "format": "binary"}, "example": "…"},
        },
    }
}  # fmt: skip
MADE: dict[str, Any] = {
    **EXAMPLE, "name": "icews14", "items": 1000, "grader": "text",
    "counts": {
        "available": 20983, "answers": 1133, "answered_by_graph": 0, "unnamed_answers": 71, "not_after_graph": 0,
        "with_leads": 619, "with_documents": 619,
        "left_out": {"repeated": 0, "known": 0, "unknown_relation": 52, "unknown_entity": 2332, "many_answers": 0,
                     "answered": 0, "long": 0},
    },
}  # fmt: skip


class QuestionUpload(datasets.Dataset, frozen=True, kw_only=True):
    """The dataset, and what it is made of."""

    counts: Counts


@route(
    router, "POST", "/from-graph", Scope.SUBMIT, "Make a dataset from a graph",
    answers(QuestionUpload, MADE) | answers(QuestionUpload, MADE, status=201),
    refuses=(404, 409, 429), status_code=201, openapi_extra=BODY,
)  # fmt: skip
async def create(
    request: Request,
    deps: RequestDeps,
    name: Annotated[str, Query(examples=["icews14"])],
    graph: Annotated[str, Query(description="Graph that the facts are held out from.", examples=["icews14"])],
    rules: Annotated[str | None, Query(description="Rule bank whose rules lead to the answers.")] = None,
    limit: Annotated[int | None, Query(ge=1, description="Number of questions to draw; by default all.")] = None,
    seed: Annotated[int, Query(ge=0, lt=1 << 63, description="Seed of the draw.")] = 0,
    side: Annotated[
        Literal["object", "subject", "both"], Query(description="Which end of a fact a question asks for.")
    ] = "both",
    grader: Annotated[
        Grader, Query(description="`set` asks for all answers; otherwise any of them counts as correct.")
    ] = "text",
    unanswered: Annotated[  # noqa: FBT002 - a query parameter is named
        bool, Query(description="Leave out questions that the graph itself answers.")
    ] = False,
) -> Response:
    """Makes questions that ask for one end of each held-out fact, as RuleQA does. The body has these facts, as `POST
    /v1/graphs` takes them, and templates of questions as JSON lines (docs/how-to/graphs.md#questions).

    Answers 201, or 200 if the dataset exists with the same items. A line that cannot be used rejects the whole upload.
    """
    choice = Choice(SIDES if side == "both" else (side,), limit, seed, grader, unanswered)
    await graphs.get(deps.database, graph)  # an unknown one is refused before the body is read
    async with spool(request, deps.settings.limits) as file, deps.graph_reading:
        stored, loaded = await graphs.load(deps.database, graph)
        read = await to_thread.run_sync(_read, file, request, loaded, deps.settings.limits)
        _check_times(stored, read.facts.upload)
        bank = (
            None if rules is None else await _load_bank(deps.database, rules, stored, read.facts.upload.graph.relations)
        )
        wording = Wording(loaded.phrases, read.templates, stored.time_unit)
        with tempfile.TemporaryFile() as items:
            counts = await to_thread.run_sync(_make, loaded.graph, read.facts, wording, choice, bank, items)
            async with aclosing(_read_batches(items)) as batches:
                created = await datasets.create(deps.database, name, batches, grader)
    answer = QuestionUpload(**msgspec.structs.asdict(created.dataset), counts=counts)
    return json(answer, 201 if created.new else 200, {"Location": f"/v1/datasets/{name}"})


def _read(file: IO[bytes], request: Request, graph: GraphFacts, limits: Limits) -> facts.ParsedQuestions:
    reading = facts.QuestionReader(frozenset(graph.graph.relations), graph.time_unit is not None)
    return reading.read(open_fact_lines(file, request, limits), SOURCE, limits.upload_rows)


def _check_times(graph: StoredGraph, held_out: GraphFacts) -> None:
    if graph.time_unit != held_out.time_unit:
        own, other = facts.UNITS[held_out.time_unit], facts.UNITS[graph.time_unit]
        message = f"each fact has {own}, but graph {graph.name!r} has {other}"
        raise Invalid(
            message, hint="write the times in the unit of the graph, or name the graph that the facts are held out from"
        )


async def _load_bank(database: Database, name: str, graph: StoredGraph, heads: Iterable[str]) -> Bank:
    """Return the bank with its rules for these relations.

    Raises:
        NotFound: there is no such bank.
        Conflict: it is of another graph, or not ready.
        Invalid: it has no rule for any of the relations.
    """
    asked = frozenset(heads)
    async with database.transaction() as connection:
        bank = await stored_rules.get_bank(connection, name)
    if bank.hash is None:
        hint = "wait for it" if bank.state == "mining" else "mine it again: mathrag rules mine"
        raise Conflict(f"`rules`: bank {name!r} is {bank.state}, so it has no rules yet", hint=hint)
    if bank.graph_hash not in (None, graph.hash):
        hint = f"mathrag rules mine --graph {graph.name} --name NAME --wait"
        raise Conflict(f"`rules`: bank {name!r} is of another graph than {graph.name!r}", hint=hint)
    found, behind = [], 0
    async for batch in stored_rules.read_rules(database, bank):
        found += [each for each in enumerate(batch, start=behind) if each[1].head.relation in asked]
        behind += len(batch)
    if not found:
        hint = f"mathrag rules show {name}, or leave out `rules`"
        raise Invalid(f"`rules`: bank {name!r} has no rule for any relation of the facts", hint=hint)
    return Bank(bank.hash, bank.miner, found)


def _make(
    graph: Graph,
    held_out: facts.ParsedGraph,
    wording: Wording,
    choice: Choice,
    bank: Bank | None,
    file: IO[bytes],
) -> Counts:
    """Write the items to a file first, so that no transaction is open while they are made."""
    made = QuestionSet(graph, held_out.upload.graph, wording, choice, bank)
    file.writelines(msgspec.json.encode(item) + b"\n" for item in made.items())
    file.seek(0)
    made.counts.left_out.repeated = held_out.repeated
    return made.counts


async def _read_batches(file: IO[bytes]) -> AsyncGenerator[list[DatasetItem], None]:
    while lines := await to_thread.run_sync(lambda: list(islice(file, BATCH))):
        yield [msgspec.json.decode(line, type=DatasetItem) for line in lines]
