"""Serves `/v1/datasets/{name}/training`: training data for retrievers and generators, from questions that rules lead
to.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Query, Response
from fastapi.responses import StreamingResponse

from services.orchestrator.api.openapi import answers
from services.orchestrator.api.routes import route
from services.orchestrator.deps import RequestDeps
from shared.errors import Conflict, Invalid
from shared.questions.items import ALWAYS
from shared.questions.training import Form, Known, Neighbours, Told, TrainingQuestion, lines
from shared.rag.guidance import write_rule
from shared.replies import Rule
from shared.rules import graph as graph_module
from shared.rules.graph import phrase
from shared.shapes import Scope
from shared.storage import datasets, graphs
from shared.storage import rules as stored_rules
from shared.storage.database import Database
from shared.storage.datasets import Dataset, LedQuestion
from shared.storage.graphs import GraphFacts, StoredGraph
from shared.storage.rules import RuleBank

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

BATCH = 200
"""Number of questions whose documents are read together."""
PAIR: dict[str, Any] = {
    "query": "On 2014-11-11, Malaysia sign formal agreement whom or what?",
    "rule": "[Entity1, consult, Entity2] leads to [Entity1, sign formal agreement, Entity2]",
    "positives": ["Time 2014-11-09 Malaysia consult China."], "negatives": ["Time 2014-11-02 Malaysia visit Japan."],
}  # fmt: skip


class LineOptions(NamedTuple):
    """How to write the lines."""

    form: Form
    cot: bool
    seed: int


class ExportSource(NamedTuple):
    """What the lines are made from."""

    dataset: Dataset
    bank: RuleBank
    graph: StoredGraph
    content: GraphFacts
    neighbours: Neighbours

    @property
    def phrases(self) -> dict[str, str]:
        """Return the phrases for the graph's relations; empty if it has none."""
        return {relation: phrase(relation, declared) for relation, declared in self.content.phrases.items()}


@route(
    router, "GET", "/{name}/training", Scope.READ, "Export training data",
    answers(Any, PAIR, media="application/x-ndjson"), refuses=(404, 409, 422),
)  # fmt: skip
async def training(
    name: str,
    deps: RequestDeps,
    rules: Annotated[str, Query(description="Rule bank whose rules lead to the answers.", examples=["kinship"])],
    form: Annotated[Form, Query(alias="as")] = "pairs",
    graph: Annotated[str | None, Query(description="Graph that an imported bank was mined from.")] = None,
    limit: Annotated[
        int | None, Query(ge=1, description="Number of questions to draw by the seed; by default all.")
    ] = None,
    seed: Annotated[int, Query(ge=0, lt=1 << 63)] = 0,
    cot: Annotated[bool, Query(description="With `messages`: let the reply first name rule and document.")] = False,  # noqa: FBT002
) -> Response:
    """Exports training data as JSON lines from a dataset that `POST /v1/datasets/from-graph` made with this bank
    (docs/how-to/tuning.md): `pairs` and `triplets` for retrievers, `instructions` and `messages` for generators. The
    same seed gives the same lines.
    """
    source = await _load_source(deps.database, name, rules, graph)
    chosen = await _choose_places(deps.database, source.dataset.id, limit, seed)
    found = _stream_lines(deps.database, source, chosen, LineOptions(form, cot, seed))
    return StreamingResponse(found, media_type="application/x-ndjson")


async def _load_source(database: Database, name: str, rules: str, graph: str | None) -> ExportSource:
    """Return everything that is needed, checked before the answer begins.

    Raises:
        NotFound: there is no such dataset, bank or graph.
        Conflict: the dataset was made with another bank, or the bank is of another graph.
        Invalid: the dataset has no questions about a graph, no rule leads to its answers, or the graph must be named.
    """
    dataset = await datasets.get(database, name)
    async with database.transaction() as connection:
        bank = await stored_rules.get_bank(connection, rules)
        summary = await datasets.count_questions(connection, dataset.id)
    _check(name, bank, summary)
    wanted = bank.graph if graph is None else graph
    if wanted is None:
        raise Invalid(f"rule bank {rules!r} was imported", hint="name its graph: --graph, over HTTP `graph`")
    stored, content = await graphs.load(database, wanted)
    if bank.graph_hash not in (None, stored.hash):
        raise Conflict(f"rule bank {rules!r} is of another graph than {wanted!r}", hint="leave out `graph`")
    neighbours = await to_thread.run_sync(Neighbours, content.graph)
    return ExportSource(dataset, bank, stored, content, neighbours)


def _check(name: str, bank: RuleBank, summary: datasets.GraphQuestionCounts) -> None:
    made = f"make one with: mathrag dataset from-graph NAME --graph G --facts FILE --rules {bank.name}"
    if not summary.queries:
        raise Invalid(f"dataset {name!r} has no questions about a graph", hint=made)
    if not summary.led:
        raise Invalid(f"no rule leads to an answer of dataset {name!r}", hint=made)
    if summary.banks != {bank.hash}:
        raise Conflict(f"the rules that lead to dataset {name!r} are of another bank than {bank.name!r}", hint=made)


async def _choose_places(database: Database, dataset: int, limit: int | None, seed: int) -> list[int]:
    """Return the positions of the questions, in order."""
    async with database.transaction() as connection:
        places = await datasets.list_ordinals(connection, dataset)
    if limit is None or limit >= len(places):
        return places
    drawn: list[int] = np.random.default_rng(seed).choice(places, limit, replace=False).tolist()
    return sorted(drawn)


async def _stream_lines(
    database: Database, source: ExportSource, places: Sequence[int], options: LineOptions
) -> AsyncIterator[bytes]:
    for first in range(0, len(places), BATCH):
        async with database.transaction() as connection:
            batch = await datasets.load_questions(connection, source.dataset.id, places[first : first + BATCH])
            numbers = {lead.rule for each in batch for lead in each.query.leads}
            rules = await stored_rules.find_rules_by_number(connection, source.bank.id, numbers)
            questions = await to_thread.run_sync(_draw_questions, source, batch, options.seed)
            texts = await datasets.load_texts(connection, source.graph.corpus, _collect_documents(questions))
        known = _read_known(source, {number: found.rule for number, found in rules.items()}, texts)
        yield await to_thread.run_sync(_write_lines, questions, known, options)


def _draw_questions(source: ExportSource, led: Sequence[LedQuestion], seed: int) -> list[TrainingQuestion]:
    return [_draw_question(source, each, seed) for each in led]


def _draw_question(source: ExportSource, led: LedQuestion, seed: int) -> TrainingQuestion:
    oracle = {document for lead in led.query.leads for document in lead.documents}
    before = ALWAYS if led.query.time is None else graph_module.parse(led.query.time)[1]
    drawn = source.neighbours.draw(led.query, before, oracle, np.random.default_rng([seed, led.ordinal]))
    return TrainingQuestion(led.text, led.golds, led.query, drawn, (seed, led.ordinal))


def _collect_documents(asked: Sequence[TrainingQuestion]) -> set[str]:
    ids = {document for each in asked for lead in each.query.leads for document in lead.documents}
    return ids | {document for each in asked for document in each.negatives}


def _read_known(source: ExportSource, rules: dict[int, Rule], texts: dict[str, str]) -> Known:
    phrases = source.phrases
    sentences = {number: write_rule(rule, phrases) for number, rule in rules.items()}
    graph = source.content.graph

    def fact(document: str) -> Told:
        subject, relation, object_ = graph.triples[int(document.removesuffix("-inverse"))].tolist()
        return Told(document, graph.entities[subject], graph.relations[relation], graph.entities[object_])

    return Known(rules, sentences, texts, fact)


def _write_lines(asked: Sequence[TrainingQuestion], known: Known, options: LineOptions) -> bytes:
    found = (line for each in asked for line in lines(options.form, each, known, cot=options.cot))
    return b"".join(msgspec.json.encode(line) + b"\n" for line in found)
