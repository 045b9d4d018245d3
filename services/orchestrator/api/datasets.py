"""Serves `/v1/datasets`: uploads, questions from a graph, questions that a model writes, and training data."""

import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from typing import IO, Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from anyio import to_thread
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from mathrag.errors import Conflict, Invalid
from mathrag.reading.columns import ITEMS, Columns
from services.orchestrator.access.identity import RequestCaller
from services.orchestrator.api import uploads
from services.orchestrator.api.examples import make_example
from services.orchestrator.api.graphs import open_fact_lines
from services.orchestrator.api.routes import Limit, answers, json, route
from services.orchestrator.api.uploads import (
    SOURCE,
    Rejected,
    Uploaded,
    read_batches,
    read_in_thread,
    report_rejections,
    spool,
)
from services.orchestrator.deps import RequestDeps
from shared.fields import WHOLE, Key, Stored
from shared.ingest import facts
from shared.ingest.datasets import ItemReader
from shared.questions.items import ALWAYS, SIDES, Bank, Choice, Counts, Grader, QuestionSet, Wording
from shared.questions.training import Form, Known, Neighbours, Told, TrainingQuestion, lines
from shared.rag.guidance import write_rule
from shared.replies import Rule
from shared.rules.facts import parse, phrase
from shared.runtime.generating import (
    MOST_CANDIDATES,
    MOST_STYLES,
    Generation,
    GenerationRequest,
    generate,
)
from shared.runtime.parameters import check_grader
from shared.samples import DatasetItem
from shared.shapes import Scope
from shared.storage import database, datasets, graphs
from shared.storage.database import Database
from shared.storage.datasets import Dataset, LedQuestion
from shared.storage.graphs import GraphFacts, StoredGraph
from shared.storage.rules import RuleBank, find_rules_by_number, get_bank, read_rules

router = APIRouter(prefix="/v1/datasets", tags=["datasets"])


class DatasetUpload(datasets.Dataset, frozen=True, kw_only=True):
    """The dataset, and the lines of the upload that were left out."""

    skipped: int
    """Lines without a question that were left out; counted only with `skip_empty`."""
    rejected: int
    """Lines that could not be used; counted only with `on_error=skip`."""
    rejected_lines: list[Rejected]
    """The first rejected lines, with the reason."""
    alternatives: int
    """Items with several different expected answers; any of them counts as correct."""
    warnings: tuple[str, ...] = ()
    """Problems of the items, such as missing expected answers, a grader that does not suit them, or unread fields with
    a similar name to a known one."""


@route(
    router, "POST", "", Scope.SUBMIT, "Upload a dataset",
    answers(DatasetUpload) | answers(DatasetUpload, status=201),
    refuses=(409, 429), status_code=201, openapi_extra=uploads.BODY,
)  # fmt: skip
async def create(
    deps: RequestDeps,
    name: Annotated[str, Query(examples=["math-500"])],
    upload: Uploaded,
    grader: Annotated[
        str | None,
        Query(description="Grader of the answers, unless a job names another; by default the mathematical one."),
    ] = None,
) -> Response:
    """Uploads questions as JSON lines, a JSON array, CSV or Parquet, with the fields `question` (or `problem`) and
    optionally `answer`, `id`, `subject`, `level`, `gold_documents` and `nuggets` (docs/how-to/api.md#uploads).

    If `answer` is a list, any of its elements counts as correct. With
    `grader=choice`, items also need the field `choices`; with `grader=rubric`, the field `rubric`.

    `warnings` gives the number of items without an expected answer, says whether textual answers would be graded as
    mathematics, and names fields that look misspelt.

    Answers 201, or 200 if the dataset exists with the same items. An unusable line rejects the whole upload; with
    `on_error=skip` the service leaves out these lines.
    """
    if grader is not None:
        check_grader(grader, "grader")
    items = ItemReader(grader, Columns(ITEMS, upload.pairs))
    async with upload.read_items(items) as reader, aclosing(read_batches(reader)) as records:
        created = await datasets.create(deps.database, name, records, grader)
    answer = DatasetUpload(
        **msgspec.structs.asdict(created.dataset), alternatives=created.alternatives, **report_rejections(reader),
        warnings=tuple(items.list_warnings()),
    )  # fmt: skip
    return json(answer, 201 if created.new else 200, {"Location": f"/v1/datasets/{name}"})


@route(router, "GET", "", Scope.READ, "List datasets", answers(database.Page[datasets.Dataset]), name="listed")
async def list_datasets(deps: RequestDeps, limit: Limit = database.DEFAULT, cursor: str | None = None) -> Response:
    """Lists the datasets, newest first."""
    return json(await datasets.list_datasets(deps.database, limit, cursor))


@route(router, "GET", "/{name}", Scope.READ, "Get a dataset", answers(datasets.DatasetDetails), refuses=(404,))
async def get(deps: RequestDeps, name: str) -> Response:
    """Returns a dataset with the numbers of its items by subject and level."""
    return json(await datasets.load_details(deps.database, name))


@route(
    router, "GET", "/{name}/items", Scope.READ, "List a dataset's items",
    answers(database.Page[datasets.ItemPreview]), refuses=(404,),
)  # fmt: skip
async def items(deps: RequestDeps, name: str, limit: Limit = database.DEFAULT, cursor: str | None = None) -> Response:
    """Lists the questions with their expected answers in the dataset's order, page by page."""
    return json(await datasets.list_items(deps.database, name, limit, cursor))


class Draw(BaseModel):
    """Items to draw from a dataset."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        strict=True,
        json_schema_extra={"example": {"name": "math-40", "size": 40, "rest": "math-460"}},
    )

    name: str
    """Name of the dataset of the drawn items."""
    size: Annotated[int, Field(ge=1, lt=1 << 31), WHOLE]
    """Number of items to draw."""
    seed: Annotated[int, Field(ge=0, lt=1 << 63), WHOLE] = 0
    """Seed of the draw; the same seed draws the same items."""
    rest: str | None = None
    """Name of a dataset of all other items; null creates none."""


class DrawnDatasets(msgspec.Struct, frozen=True, kw_only=True):
    """The dataset of the drawn items, and that of the other items."""

    drawn: datasets.Dataset
    """The dataset of the drawn items."""
    rest: datasets.Dataset | None
    """The dataset of the other items; null if the request gave no name for it."""


@route(
    router, "POST", "/{name}/draw", Scope.SUBMIT, "Draw items of a dataset",
    answers(DrawnDatasets) | answers(DrawnDatasets, status=201),
    refuses=(404, 409, 429), status_code=201,
)  # fmt: skip
async def draw(name: str, request: Draw, deps: RequestDeps) -> Response:
    """Stores randomly drawn items as a new dataset, for instance to choose a pipeline on them and measure it on the
    `rest`. The same seed draws the same items.

    Answers 201, or 200 if the datasets exist with the same items.
    """
    async with deps.database.in_project_of(database.Origins(datasets=[name])):
        drawn, rest = await datasets.draw(deps.database, name, request.name, request.size, request.seed, request.rest)
    answer = DrawnDatasets(drawn=drawn.dataset, rest=rest.dataset if rest else None)
    is_new = drawn.new or (rest is not None and rest.new)
    return json(answer, 201 if is_new else 200, {"Location": f"/v1/datasets/{request.name}"})


# Serves `POST /v1/datasets/from-graph`: makes a dataset of questions from a graph and facts held out from it.

questions_router = APIRouter(prefix="/v1/datasets", tags=["datasets"])
generation_router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

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


class QuestionUpload(datasets.Dataset, frozen=True, kw_only=True):
    """The dataset, and the number of its questions."""

    counts: Counts
    """Number of questions, and why others were left out."""


@route(
    questions_router, "POST", "/from-graph", Scope.SUBMIT, "Make a dataset from a graph",
    answers(QuestionUpload) | answers(QuestionUpload, status=201),
    refuses=(404, 409, 429), status_code=201, openapi_extra=BODY, name="create",
)  # fmt: skip
async def create_from_graph(
    request: Request,
    deps: RequestDeps,
    name: Annotated[str, Query(examples=["icews14"])],
    graph: Annotated[str, Query(description="Graph that the held-out facts belong to.", examples=["icews14"])],
    rules: Annotated[str | None, Query(description="Rule bank whose rules lead to the answers.")] = None,
    limit: Annotated[int | None, Query(ge=1, description="Number of questions to draw; by default all.")] = None,
    seed: Annotated[int, Query(ge=0, lt=1 << 63, description="Seed of the draw.")] = 0,
    side: Annotated[
        Literal["object", "subject", "both"], Query(description="End of a fact that the questions ask for.")
    ] = "both",
    grader: Annotated[
        Grader, Query(description="`set` asks for all answers; otherwise any of them counts as correct.")
    ] = "text",
    unanswered: Annotated[  # noqa: FBT002 - a query parameter is named
        bool, Query(description="Leave out questions that the graph itself answers.")
    ] = False,
) -> Response:
    """Makes questions that ask for one end of each held-out fact, as RuleQA does. The body has these facts, in the
    form of `POST /v1/graphs`, and templates of questions as JSON lines
    (docs/how-to/knowledge-graphs.md#make-questions).

    Answers 201, or 200 if the dataset exists with the same items. An unusable line rejects the whole upload.
    """
    choice = Choice(SIDES if side == "both" else (side,), limit, seed, grader, unanswered)
    await graphs.get(deps.database, graph)  # an unknown one is refused before the body is read
    limits = deps.settings.limits
    async with spool(request, limits) as file, deps.graph_reading:
        stored, loaded = await graphs.load(deps.database, graph)
        reading = facts.QuestionReader(frozenset(loaded.graph.relations), loaded.time_unit is not None)
        read = await to_thread.run_sync(
            lambda: reading.read(open_fact_lines(file, request, limits), SOURCE, limits.upload_rows)
        )
        if stored.time_unit != read.facts.upload.time_unit:
            own, other = facts.UNITS[read.facts.upload.time_unit], facts.UNITS[stored.time_unit]
            message = f"each fact has {own}, but graph {stored.name!r} has {other}"
            hint = "write the times in the unit of the graph, or name the graph that the facts are held out from"
            raise Invalid(message, hint=hint)
        held_out = read.facts.upload.graph
        bank = None if rules is None else await _load_bank(deps.database, rules, stored, held_out.relations)
        wording = Wording(loaded.phrases, read.templates, stored.time_unit)
        questions = await to_thread.run_sync(QuestionSet, loaded.graph, held_out, wording, choice, bank)
        # Written to a file first, so that no transaction is open while the items are made.
        with tempfile.TemporaryFile() as file_of_items:
            await to_thread.run_sync(_write_items, questions, file_of_items)
            items = (msgspec.json.decode(line, type=DatasetItem) for line in file_of_items)
            async with (
                aclosing(read_in_thread(items)) as batches,
                deps.database.in_project_of(database.Origins(graphs=[graph])),
            ):
                created = await datasets.create(deps.database, name, batches, grader)
    counts = questions.counts
    counts.left_out.repeated = read.facts.repeated
    answer = QuestionUpload(**msgspec.structs.asdict(created.dataset), counts=counts)
    return json(answer, 201 if created.new else 200, {"Location": f"/v1/datasets/{name}"})


async def _load_bank(database: Database, name: str, graph: StoredGraph, heads: Iterable[str]) -> Bank:
    """Return the bank with its rules for these relations.

    Raises:
        NotFound: the bank does not exist.
        Conflict: it is of another graph, or not ready.
        Invalid: it has no rule for any of the relations.
    """
    asked = frozenset(heads)
    async with database.transaction() as connection:
        bank = await get_bank(connection, name)
    if bank.hash is None:
        hint = "wait until mining has ended" if bank.state == "mining" else "mine it again: mathrag rules mine"
        raise Conflict(f"`rules`: bank {name!r} is {bank.state}, so it has no rules yet", hint=hint)
    if bank.graph_hash not in (None, graph.hash):
        hint = f"mathrag rules mine --graph {graph.name} --name NAME --wait"
        raise Conflict(f"`rules`: bank {name!r} was mined from another graph than {graph.name!r}", hint=hint)
    found, behind = [], 0
    async for batch in read_rules(database, bank):
        found += [each for each in enumerate(batch, start=behind) if each[1].head.relation in asked]
        behind += len(batch)
    if not found:
        hint = f"mathrag rules show {name}, or leave out `rules`"
        raise Invalid(f"`rules`: bank {name!r} has no rule for any relation of the facts", hint=hint)
    return Bank(bank.hash, bank.miner, found)


def _write_items(questions: QuestionSet, file: IO[bytes]) -> None:
    file.writelines(msgspec.json.encode(item) + b"\n" for item in questions.items())
    file.seek(0)


# Serves `POST /v1/datasets/generate`: lets the judge model write questions from the passages of a corpus.


WRITING = make_example(
    Generation, state="writing", items=0, left_out={}, failed=0, spare=0, guessable=0, found_elsewhere=0, overlap=None
)
NEEDING_MORE = ("choice", "rubric")
"""Graders that read more of an item than a question and an answer."""


class GenerationBody(BaseModel):
    """A dataset to generate."""

    model_config = ConfigDict(
        extra="forbid",
        use_attribute_docstrings=True,
        strict=True,
        json_schema_extra={"example": {"name": "handbook", "corpus": "handbook"}},
    )

    name: str
    """Name of the new dataset."""
    corpus: Stored
    """Corpus whose passages the questions are written from."""
    size: Annotated[int, Field(ge=1, le=MOST_CANDIDATES), WHOLE] = 100
    """Maximum number of questions in the dataset."""
    candidates: Annotated[int, Field(ge=1, le=MOST_CANDIDATES), WHOLE] | None = None
    """Number of questions to write; up to `size` of those that pass every check are kept. By default it is twice
    `size`."""
    hops: Annotated[list[Literal[1, 2]], Field(min_length=1, max_length=2)] = [1]
    """Number of passages that a question needs: [1], [2], or [1, 2] to alternate."""
    seed: Annotated[int, Field(ge=0, lt=1 << 63), WHOLE] = 0
    """Seed of the draw of passages."""
    styles: Annotated[list[Annotated[Stored, Field(min_length=1)]], Field(max_length=MOST_STYLES)] = []
    """Instructions for the wording, such as "Ask as a customer who is in a hurry."; each is used in turn."""
    grader: str = "contains"
    """Grader of the answers, unless a job names another."""
    models: dict[Key, Stored] = {}
    """Model names by role; only the role `judge` is used."""

    def to_request(self, submitted_by: str | None) -> GenerationRequest:
        """Return the request after checking it.

        Raises:
            Invalid: the grader does not exist, it cannot grade these items, or there are fewer candidates than
            questions.
        """
        check_grader(self.grader, "grader")
        if self.grader in NEEDING_MORE:
            problem = (
                f"`grader`: {self.grader!r} needs more than a question and an answer, which is all that is generated"
            )
            raise Invalid(problem, hint="use contains, text, f1, exact or math")
        if self.candidates is not None and self.candidates < self.size:
            problem = f"`candidates`: {self.candidates} are too few for `size` {self.size}"
            raise Invalid(problem, hint="write more questions than the dataset needs, since some fail the checks")
        chosen = {
            "candidates": self.candidates or min(2 * self.size, MOST_CANDIDATES),
            "hops": tuple(sorted(set(self.hops))), "styles": tuple(self.styles), "submitted_by": submitted_by,
        }  # fmt: skip
        return GenerationRequest(**self.model_dump() | chosen)


@route(
    generation_router, "POST", "/generate", Scope.SUBMIT, "Generate a dataset",
    answers(Generation, make_example(Generation, state="ready"))
    | answers(Generation, status=201) | answers(Generation, WRITING, status=202),
    refuses=(404, 409, 413, 429), status_code=202, name="generate",
)  # fmt: skip
async def generate_dataset(body: GenerationBody, deps: RequestDeps, caller: RequestCaller) -> Response:
    """Starts a job in which the judge model writes questions from passages of the corpus and checks them
    (docs/how-to/test-sets.md). Follow the job in `job`. When it has ended, send the same request again to store the
    questions that passed as a dataset.

    Answers 202 while the job runs, 201 when it stores the dataset, and 200 if the dataset was stored before. If the
    job failed or was cancelled, the same request starts another job, which keeps the finished calls.
    """
    async with deps.database.in_project_of(database.Origins(corpora=[body.corpus])):
        generation, new = await generate(deps.database, deps.settings, body.to_request(caller.name))
    if generation.state == "writing":
        deps.wake()
        return json(generation, 202, {"Location": f"/v1/jobs/{generation.job}"})
    return json(generation, 201 if new else 200, {"Location": f"/v1/datasets/{generation.name}"})


# Serves `/v1/datasets/{name}/training`: training data for retrievers and generators, from questions that rules lead
# to.

training_router = APIRouter(prefix="/v1/datasets", tags=["datasets"])

BATCH = 200
"""Number of questions whose documents are read together."""


class LineOptions(NamedTuple):
    """How to write the lines."""

    form: Form
    cot: bool
    seed: int


class ExportSource(NamedTuple):
    """Sources of the lines."""

    dataset: Dataset
    bank: RuleBank
    graph: StoredGraph
    content: GraphFacts
    neighbours: Neighbours


@route(
    training_router, "GET", "/{name}/training", Scope.READ, "Export training data",
    answers(Any, make_example("TrainingPair"), media="application/x-ndjson"), refuses=(404, 409, 422),
)  # fmt: skip
async def training(
    name: str,
    deps: RequestDeps,
    rules: Annotated[str, Query(description="Rule bank whose rules lead to the answers.", examples=["kinship"])],
    form: Annotated[Form, Query(alias="as", description="Form of the lines.")] = "pairs",
    graph: Annotated[str | None, Query(description="Graph that an imported bank was mined from.")] = None,
    limit: Annotated[
        int | None, Query(ge=1, description="Number of questions to draw by the seed; by default all.")
    ] = None,
    seed: Annotated[int, Query(ge=0, lt=1 << 63, description="Seed of the draw.")] = 0,
    cot: Annotated[  # noqa: FBT002
        bool, Query(description="With `messages`: each reply names rule and document before it answers.")
    ] = False,
) -> Response:
    """Exports training data as JSON lines from a dataset that `POST /v1/datasets/from-graph` made with the
    rule bank `rules` (docs/how-to/retrieval.md#tuning): `pairs` and `triplets` for retrievers, `instructions` and
    `messages` for generators. The same seed gives the same lines.
    """
    dataset = await datasets.get(deps.database, name)
    async with deps.database.transaction() as connection:
        bank = await get_bank(connection, rules)
        summary = await datasets.count_questions(connection, dataset.id)
    made = f"make one with: mathrag dataset from-graph NAME --graph G --facts FILE --rules {bank.name}"
    if not summary.queries:
        raise Invalid(f"dataset {name!r} has no questions about a graph", hint=made)
    if not summary.led:
        raise Invalid(f"no rule leads to an answer of dataset {name!r}", hint=made)
    if summary.banks != {bank.hash}:
        raise Conflict(f"dataset {name!r} was made with another rule bank than {bank.name!r}", hint=made)
    wanted = bank.graph if graph is None else graph
    if wanted is None:
        raise Invalid(
            f"rule bank {rules!r} was imported and has no graph", hint="name its graph: --graph, over HTTP `graph`"
        )
    stored, content = await graphs.load(deps.database, wanted)
    if bank.graph_hash not in (None, stored.hash):
        raise Conflict(f"rule bank {rules!r} was mined from another graph than {wanted!r}", hint="leave out `graph`")
    neighbours = await to_thread.run_sync(Neighbours, content.graph)
    source = ExportSource(dataset, bank, stored, content, neighbours)
    async with deps.database.transaction() as connection:
        places = await datasets.list_ordinals(connection, source.dataset.id)
    if limit is None or limit >= len(places):
        chosen = places
    else:
        drawn: list[int] = np.random.default_rng(seed).choice(places, limit, replace=False).tolist()
        chosen = sorted(drawn)
    found = _stream_lines(deps.database, source, chosen, LineOptions(form, cot, seed))
    return StreamingResponse(found, media_type="application/x-ndjson")


async def _stream_lines(
    database: Database, source: ExportSource, places: Sequence[int], options: LineOptions
) -> AsyncIterator[bytes]:
    for first in range(0, len(places), BATCH):
        async with database.transaction() as connection:
            batch = await datasets.load_questions(connection, source.dataset.id, places[first : first + BATCH])
            numbers = {lead.rule for each in batch for lead in each.query.leads}
            rules = await find_rules_by_number(connection, source.bank.id, numbers)
            questions = await to_thread.run_sync(_draw_questions, source, batch, options.seed)
            ids = {document for each in questions for lead in each.query.leads for document in lead.documents}
            texts = await datasets.load_texts(
                connection, source.graph.corpus, ids | {document for each in questions for document in each.negatives}
            )
        known_rules = {number: found.rule for number, found in rules.items()}
        yield await to_thread.run_sync(_write_lines, source, questions, known_rules, texts, options)


def _draw_questions(source: ExportSource, led: Sequence[LedQuestion], seed: int) -> list[TrainingQuestion]:
    found: list[TrainingQuestion] = []
    for each in led:
        oracle = {document for lead in each.query.leads for document in lead.documents}
        before = ALWAYS if each.query.time is None else parse(each.query.time)[1]
        drawn = source.neighbours.draw(each.query, before, oracle, np.random.default_rng([seed, each.ordinal]))
        found.append(TrainingQuestion(each.text, each.golds, each.query, drawn, (seed, each.ordinal)))
    return found


def _write_lines(
    source: ExportSource,
    questions: Sequence[TrainingQuestion],
    rules: dict[int, Rule],
    texts: dict[str, str],
    options: LineOptions,
) -> bytes:
    phrases = {relation: phrase(relation, declared) for relation, declared in source.content.phrases.items()}
    sentences = {number: write_rule(rule, phrases) for number, rule in rules.items()}
    graph = source.content.graph

    def fact(document: str) -> Told:
        subject, relation, object_ = graph.triples[int(document.removesuffix("-inverse"))].tolist()
        return Told(document, graph.entities[subject], graph.relations[relation], graph.entities[object_])

    known = Known(rules, sentences, texts, fact)
    found = (line for each in questions for line in lines(options.form, each, known, cot=options.cot))
    return b"".join(msgspec.json.encode(line) + b"\n" for line in found)
