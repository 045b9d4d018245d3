"""Work through a batch: check its lines, submit them as jobs, and write their answers."""

import logging
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeVar

import msgspec
from anyio import to_thread
from pydantic import BaseModel, ValidationError
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import InProgress, Invalid, MathragError, NotFound, TooMany, Unavailable
from services.orchestrator.access.limits import check_body
from services.orchestrator.api.routes import make_openai_refusal, make_problem
from services.orchestrator.openai.chat import ChatCompletion, ChatCompletionRequest, make_failure
from services.orchestrator.openai.embeddings import EmbeddingsRequest, check_dimensions, to_body
from services.orchestrator.openai.files import BATCH, format_id
from services.orchestrator.openai.models import ModelNotFound, NamedModel, find_named, list_all_models
from services.orchestrator.scheduling.routines import Routine
from shared import canonical
from shared.access.filters import encode_openai_error
from shared.calls import MAX_QUESTION, Decoding
from shared.pipelines.conversation import CONVERSATION
from shared.pipelines.embedding import EMBEDDING
from shared.replies import Embedded, Generated, Reply
from shared.runtime.lifecycle import cancel_all
from shared.runtime.parameters import parse_params
from shared.runtime.submit import Drafting, Submission, insert, question_for
from shared.samples import Conversation, DatasetItem, Outcome, Texts
from shared.settings import Settings
from shared.storage import batches, configurations, corpora, datasets, files
from shared.storage.batches import Ended, StoredBatch
from shared.storage.configurations import Configuration
from shared.storage.database import (
    SHARED,
    Database,
    SampleState,
    copy,
    is_passing,
    limit_to,
    sql,
    try_decode,
    try_decode_params,
)
from shared.storage.files import File
from shared.storage.provenance import find_answering_text, find_extractor

Endpoint = Literal["/v1/chat/completions", "/v1/embeddings"]
EMBEDDINGS: Endpoint = "/v1/embeddings"
MOST_LINES = 50_000
MOST_INPUTS = 50_000
"""OpenAI's limits of the requests of a batch, and of the texts to embed in all of them."""
MOST_ERRORS = 100
"""Number of errors that a batch lists; further ones are counted."""
LONGEST_CUSTOM_ID = 512
BOM = b"\xef\xbb\xbf"


Body = TypeVar("Body", bound=BaseModel)


class LineError(msgspec.Struct, frozen=True, kw_only=True):
    """An error in the file, as a batch's `errors` show it."""

    code: str
    message: str
    line: int | None = None
    """Number of the line, from 1; None for the whole file."""
    param: str | None = None


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """Holds a request of a batch that has passed all checks."""

    number: int
    custom_id: str
    model: NamedModel
    question: str
    decoding: Decoding
    asked: Conversation | Texts | None = None
    """Request stored for its sample; None if a pipeline answers the question."""

    @property
    def group(self) -> tuple[str, Decoding | None]:
        """Return the key of the job that answers the line: a pipeline's sampling belongs to the job, a conversation
        brings its own.
        """
        return self.model.id, self.decoding if self.asked is None else None


class RequestLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line of OpenAI's batch format."""

    custom_id: str
    method: str
    url: str
    body: dict[str, Any]


_LINE = msgspec.json.Decoder(RequestLine)


class LineReader:
    """Reads a file chunk by chunk, checks each line as the same request on its own would be, and collects the errors by
    line. Only one chunk and one line are in memory.
    """

    def __init__(self, endpoint: str, models: Sequence[NamedModel], configured: Decoding, longest: int) -> None:
        """`configured` is the sampling for lines that do not set it; a line may have `longest` bytes."""
        self.errors: list[LineError] = []
        self.wrong = 0
        """Errors, also those that are not kept."""
        self.total = 0
        """Requests so far, good or bad."""
        self._endpoint = endpoint
        self._models = models
        self._configured = configured
        self._longest = longest
        self._number = 0
        self._rest = b""
        self._inputs = 0
        self._seen: dict[str, int] = {}

    def read(self, chunk: bytes) -> list[Line]:
        """Return the requests that end in this chunk."""
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        lines = [line for each in whole for line in self._read_line(each)]
        if len(self._rest) > self._longest:
            self._number += 1
            raise self._refuse_long_line()
        return lines

    def end(self) -> list[Line]:
        """Return the last request if no newline ends it."""
        lines = list(self._read_line(self._rest))
        if not self.total and not self.wrong:
            self._note(LineError(code="empty_file", message="the file holds no requests"))
        return lines

    def _read_line(self, content: bytes) -> Iterator[Line]:
        self._number += 1
        if len(content) > self._longest:
            raise self._refuse_long_line()
        if not content.strip():
            return
        self.total += 1
        if self.total > MOST_LINES:
            raise Stopped(LineError(code="too_many_requests", message=f"a batch may have {MOST_LINES} requests"))
        try:
            line = _decode(content)
            self._check_custom_id(line.custom_id)
            if line.method != "POST":
                raise Invalid("`method`: must be POST")
            if line.url != self._endpoint:
                raise Invalid(f"`url`: is {line.url[:100]!r}, but the batch's endpoint is {self._endpoint!r}")
            check_body(line.body)
            yield self._read_embedding(line) if self._endpoint == EMBEDDINGS else self._read_chat(line)
        except MathragError as error:
            self._note(describe_error(error, CODES.get(type(error), "invalid_request"), self._number))

    def _read_embedding(self, line: RequestLine) -> Line:
        request = _parse(EmbeddingsRequest, line.body)
        model = find_named(self._models, request.model, "embedder")
        self._inputs += len(request.input)
        if self._inputs > MOST_INPUTS:
            raise Stopped(LineError(code="too_many_inputs", message=f"a batch may embed {MOST_INPUTS} texts"))
        texts = Texts(texts=tuple(request.input), encoding=request.encoding_format, dimensions=request.dimensions)
        return Line(
            number=self._number, custom_id=line.custom_id, model=model, question=texts.texts[0][:MAX_QUESTION],
            decoding=self._configured, asked=texts,
        )  # fmt: skip

    def _read_chat(self, line: RequestLine) -> Line:
        request = _parse(ChatCompletionRequest, line.body)
        if request.stream:
            raise Invalid("`stream`: is not supported in a batch", hint="leave it out")
        model = find_named(self._models, request.model, "chat")
        decoding = request.make_decoding(self._configured)
        conversation = None if model.pipeline else request.make_conversation(self._configured)
        question = request.question() if conversation is None else question_for(conversation)
        return Line(
            number=self._number, custom_id=line.custom_id, model=model, question=question, decoding=decoding,
            asked=conversation,
        )  # fmt: skip

    def _check_custom_id(self, custom_id: str) -> None:
        check_body({"custom_id": custom_id})
        if not 0 < len(custom_id) <= LONGEST_CUSTOM_ID:
            raise Invalid(f"`custom_id`: must have 1 to {LONGEST_CUSTOM_ID} characters")
        if (before := self._seen.setdefault(custom_id, self._number)) != self._number:
            raise Duplicate(f"`custom_id`: {custom_id[:100]!r} was already used in line {before}")

    def _refuse_long_line(self) -> "Stopped":
        message = f"the line has more than {self._longest} bytes"
        return Stopped(LineError(code="line_too_long", message=message, line=self._number))

    def _note(self, error: LineError) -> None:
        self.wrong += 1
        if len(self.errors) < MOST_ERRORS:
            self.errors.append(error)


class Stopped(Exception):
    """Raised if the rest of the file is not read."""

    def __init__(self, error: LineError) -> None:
        super().__init__(error.message)
        self.error = error


class Duplicate(Invalid):
    """Raised if a `custom_id` is used twice."""


class NoJson(Invalid):
    """Raised if the line is not a JSON object."""


CODES: dict[type[MathragError], str] = {
    Duplicate: "duplicate_custom_id", NoJson: "invalid_json_line", ModelNotFound: "model_not_found",
}  # fmt: skip
"""Error codes by error; any other error is an `invalid_request`."""


def describe_error(error: MathragError, code: str, line: int | None = None) -> LineError:
    """Return the error as a batch lists it; `line` is None if it concerns the whole file."""
    problem = make_problem(error, "")
    message = problem.detail + (f" ({problem.hint})" if problem.hint else "")
    return LineError(code=code, message=message, line=line, param=problem.field)


def _decode(content: bytes) -> RequestLine:
    if content.startswith(BOM):
        raise NoJson("the line begins with a byte order mark", hint="save the file as UTF-8 without BOM")
    try:
        return _LINE.decode(content)
    except msgspec.ValidationError as error:
        raise Invalid(f"the line is not a batch request: {error}") from error
    except UnicodeDecodeError as error:
        raise NoJson("the line is not in UTF-8") from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise NoJson(f"the line is not a JSON object: {error}") from error


def _parse(model: type[Body], body: dict[str, Any]) -> Body:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        wrong = error.errors()[0]
        raise make_openai_refusal({**wrong, "loc": ("body", *wrong["loc"])}) from error


INSERT_DATASET = text("INSERT INTO datasets (name, hash, items, online) VALUES (:name, '', 0, true) RETURNING id")
INSERT_JOB = text("""
    INSERT INTO batch_jobs (batch_id, number, job, model, corpus) VALUES (:batch, :number, :job, :model, :corpus)""")
LINE_COLUMNS = ("batch_id", "line", "custom_id", "job", "ordinal")
GIVEN = ("job", "ordinal", "repeat", "content")


class LineGroup:
    """Lines that one job answers, and the dataset made of them."""

    def __init__(self, number: int, dataset: int, name: str, line: Line) -> None:
        self.number = number
        self.job = uuid.uuid4()
        self.dataset = dataset
        self.name = name
        """Name of the dataset; names that people choose cannot contain a `:`."""
        self.model: NamedModel = line.model
        self.decoding: Decoding = line.decoding
        self.digest = datasets.Digest()

    def add(self, line: Line) -> tuple[int, DatasetItem]:
        """Return the line's position in the dataset, and its item."""
        item = DatasetItem(
            question=line.question, gold=None, gold_documents=None, subject=None, level=None, custom_id=line.custom_id
        )
        ordinal = self.digest.items
        self.digest.add([item])
        return ordinal, item


class BatchJobs:
    """Stores a batch's lines as they arrive, and then the jobs that answer them: one per model or pipeline and its
    sampling, so that each model is loaded once.

    Everything is written in one transaction with the batch's new state, while its file is read: a batch has all its
    jobs, or none.
    """

    def __init__(
        self, connection: AsyncConnection, settings: Settings, batch: StoredBatch, holding: Configuration
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._batch = batch
        self._holding = holding
        self._groups: dict[tuple[str, Decoding | None], LineGroup] = {}

    async def add(self, lines: Sequence[Line]) -> None:
        """Store lines: their items, the inputs of their samples, and where each is answered."""
        items, inputs, places = [], [], []
        for line in lines:
            group = self._groups.get(line.group)
            if group is None:
                number = len(self._groups) + 1
                name = f"batch:{self._batch.public_id.hex}:{number}"
                dataset = int((await self._connection.execute(INSERT_DATASET, {"name": name})).scalar_one())
                group = self._groups[line.group] = LineGroup(number, dataset, name, line)
            ordinal, item = group.add(line)
            items.append(datasets.item_row(group.dataset, ordinal, item))
            places.append((self._batch.id, line.number, line.custom_id, group.number, ordinal))
            if line.asked is not None:
                inputs.append((group.job, ordinal, 0, canonical.encode(line.asked)))
        for table, columns, rows in (
            ("items", datasets.ITEM_COLUMNS, items), ("given", GIVEN, inputs), ("batch_lines", LINE_COLUMNS, places),
        ):  # fmt: skip
            await copy(self._connection, table, columns, rows)

    async def submit(self, total: int) -> bool:
        """Insert the jobs, then start the batch, so that a cancellation waits only for the commit; return False if it
        was cancelled in the meantime.

        Raises:
            NotFound, Invalid, Unavailable: something that a job names cannot be used, or not yet.
            TooLarge, TooMany: a limit of the operator is exceeded.
        """
        drafting, drafts, rows = Drafting(self._connection, self._settings), [], []
        for group in self._groups.values():
            # The key's quota counts the file.
            values = {"dataset": group.dataset, "hash": group.digest.content, "items": group.digest.items, "bytes": 0}
            await self._connection.execute(datasets.FINISH, values)
            drafts.append(await drafting.draft(self._make_submission(group)))
            row = {"number": group.number, "job": group.job, "model": group.model.id, "corpus": group.model.corpus}
            rows.append({"batch": self._batch.id, **row})
        await insert(self._connection, self._settings, drafts)
        await self._connection.execute(INSERT_JOB, rows)
        models = {group.model.id for group in self._groups.values()}
        return await batches.start(self._connection, self._batch.id, total, models.pop() if len(models) == 1 else None)

    def _make_submission(self, group: LineGroup) -> Submission:
        params, model = parse_params({}, self._holding.params), group.model
        batch = format_id(BATCH, self._batch.public_id)
        pipeline = EMBEDDING if model.kind == "embedder" else model.pipeline or CONVERSATION
        generate = msgspec.structs.replace(params.generate, **msgspec.structs.asdict(group.decoding))
        return Submission(
            name=f"{batch}-{group.number}", dataset=group.name, pipeline=pipeline,
            corpus=model.corpus, params=msgspec.structs.replace(params, generate=generate),
            configuration=self._holding.version, models={"generate": model.id} if pipeline == CONVERSATION else {},
            metadata={"batch": str(batch)}, job=group.job, submitted_by=self._batch.submitted_by,
        )  # fmt: skip


PASSING = (InProgress, TooMany, Unavailable)
"""Temporary errors: the batch stays in `validating` and is tried again."""


class _Refused(Exception):
    """Raised if the lines cannot be used."""

    def __init__(self, errors: list[LineError]) -> None:
        super().__init__(errors)
        self.errors = errors


async def validate(database: Database, settings: Settings, batch: StoredBatch) -> bool:
    """Move a batch from `validating` to `in_progress` or `failed`; return False if it has to wait, or if another
    process does it.
    """
    holding = await configurations.load_newest(database)
    try:
        return await _start(database, settings, batch, holding)
    except _Refused as refused:
        await batches.fail(database, batch.id, [msgspec.structs.asdict(each) for each in refused.errors])
    except PASSING:
        return False
    except MathragError as error:
        await batches.fail(database, batch.id, [msgspec.structs.asdict(describe_error(error, error.kind))])
    return True


async def _start(database: Database, settings: Settings, batch: StoredBatch, holding: Configuration) -> bool:
    models = await list_all_models(settings, database)
    configured = parse_params({}, holding.params).generate.decoding
    reader = LineReader(batch.endpoint, models, configured, settings.limits.line_bytes)
    async with aclosing(_read(database, batch, reader)) as read:
        async with database.transaction() as connection:
            if not await batches.lock(connection, batch.id):
                return False
            batch_jobs = BatchJobs(connection, settings, batch, holding)
            async for lines in read:
                if reader.wrong:
                    break
                await batch_jobs.add(lines)
            if reader.wrong or not await batch_jobs.submit(reader.total):
                await connection.rollback()
        async for _ in read:  # past the first bad line, without a transaction: every error is said
            pass
    if reader.wrong:
        errors = reader.errors
        if more := reader.wrong - len(errors):
            message = f"{more} more lines are invalid; the first {MOST_ERRORS} are listed"
            errors = [*errors, LineError(code="more_errors", message=message)]
        raise _Refused(errors)
    return True


async def _read(database: Database, batch: StoredBatch, reader: LineReader) -> AsyncGenerator[list[Line]]:
    """Yield the requests of each chunk."""
    try:
        async for chunk in files.read(database, batch.input_file):
            yield await to_thread.run_sync(reader.read, chunk)
        yield await to_thread.run_sync(reader.end)
    except Stopped as stopped:
        raise _Refused([*reader.errors, stopped.error]) from stopped
    except NotFound as error:
        raise _Refused([LineError(code="invalid_file", message="the input file was deleted")]) from error


REPLIES = sql("""
    SELECT t.sample_id, a.reply, a.prompt_tokens, a.completion_tokens
    FROM steps t JOIN calls c ON c.id = t.call_id AND c.role IN ('generate', 'embed')
    JOIN attempts a ON {ACCEPTED_FOR} c.id
    WHERE t.sample_id = ANY(:samples) ORDER BY t.sample_id, t.position, t.slot""")
_REPLY: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)
_TEXTS = msgspec.json.Decoder(Texts)

Cited = Mapping[tuple[str | None, str], corpora.Shown]
"""Documents by corpus and hash."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What answers one line."""

    body: dict[str, Any]
    prompt_tokens: int = 0
    completion_tokens: int = 0


async def read_answers(connection: AsyncConnection, rows: Sequence[RowMapping]) -> dict[int, Answer | Invalid]:
    """Return the answers of these lines by line number; lines without an answer are missing.

    An `Invalid` stands for vectors whose length differs from the requested one.
    """
    replies = defaultdict(list)
    samples = [row["sample"] for row in rows if row["outcome"] is not None]
    for each in await connection.execute(REPLIES, {"samples": samples}):
        replies[each.sample_id].append(each)
    outcomes = {row["line"]: try_decode(row["outcome"], Outcome, "its outcome")[0] for row in rows}
    citations = await _read_documents(connection, rows, outcomes)
    answers: dict[int, Answer | Invalid] = {}
    for row in rows:
        if (outcome := outcomes[row["line"]]) is None:
            continue
        of_sample = replies[row["sample"]]
        found = (
            _embed(row, of_sample) if row["pipeline"] == EMBEDDING else _complete(row, outcome, of_sample, citations)
        )
        if found is not None:
            answers[row["line"]] = found
    return answers


async def _read_documents(
    connection: AsyncConnection, rows: Iterable[RowMapping], outcomes: Mapping[int, Outcome | None]
) -> Cited:
    """Return the documents that answers cite, with one statement per corpus."""
    hashes: dict[str | None, set[str]] = defaultdict(set)
    for row in rows:
        if (outcome := outcomes[row["line"]]) is not None and outcome.context:
            hashes[row["corpus"]].update(outcome.context)
    return {
        (corpus, hash_): document
        for corpus, of_corpus in hashes.items()
        for hash_, document in (await corpora.load_documents(connection, corpus, sorted(of_corpus))).items()
    }


def _embed(row: RowMapping, replies: Sequence[Any]) -> Answer | Invalid:
    vectors = [reply.vector for each in replies if isinstance(reply := _REPLY.decode(each.reply), Embedded)]
    request = _TEXTS.decode(row["given"])
    try:
        check_dimensions(request.dimensions, len(vectors[0]) // 4)
    except Invalid as error:
        return error
    return Answer(body=to_body(row["model"], vectors, request.encoding))


def _complete(row: RowMapping, outcome: Outcome, replies: Sequence[Any], cited: Cited) -> Answer | None:
    """Return the completion; None if nothing was written and nothing refused."""
    texts = [reply.text for each in replies if isinstance(reply := _REPLY.decode(each.reply), Generated)]
    answer = find_answering_text(texts, outcome, find_extractor(try_decode_params(row["params"], "")[0]))
    if answer is None and outcome.refusal is None:
        return None
    # The address of the provenance, and the fields of a pipeline's answer besides the text.
    extension: dict[str, Any] = {"job": str(row["job"]), "url": f"/v1/jobs/{row['job']}/samples/{row['ordinal']}"}
    if row["pipeline"] != CONVERSATION:
        extension |= {
            "context": [cited[row["corpus"], hash_] for hash_ in outcome.context],
            "decisions": outcome.trace.decisions,
            "answer": outcome.answer,
            "extraction": outcome.extraction,
            "refusal": outcome.refusal,
        }
    made = ChatCompletion(
        id=f"chatcmpl-{row['job'].hex}-{row['ordinal']}",
        created=int(row["ended_at"].timestamp()),
        model=row["model"],
        text=answer or "",
        finish_reason="length" if outcome.truncated else "stop",
        prompt_tokens=sum(each.prompt_tokens or 0 for each in replies),
        completion_tokens=sum(each.completion_tokens or 0 for each in replies),
        extension=extension,
    )
    return Answer(body=made.body(), prompt_tokens=made.prompt_tokens, completion_tokens=made.completion_tokens)


PAGE = 200
"""Number of lines whose answers are in memory at a time."""
PAGE_OF_VECTORS = 10
"""Number of lines in memory at a time if a line may have 2,048 vectors."""
SELECT_LINES = text("""
    SELECT l.line, l.custom_id, l.ordinal, b.model, b.corpus, b.job, j.pipeline, j.params, j.state AS job_state,
        j.reason, s.id AS sample, s.state, s.failure, s.detail, s.ended_at, o.outcome, g.content AS given
    FROM batch_lines l JOIN batch_jobs b ON b.batch_id = l.batch_id AND b.number = l.job
    LEFT JOIN jobs j ON j.public_id = b.job
    LEFT JOIN samples s ON s.job_id = j.id AND s.kind = 'item' AND s.ordinal = l.ordinal AND s.repeat = 0
    LEFT JOIN outcomes o ON o.sample_id = s.id
    LEFT JOIN given g ON j.pipeline = 'embedding' AND g.job = b.job AND g.ordinal = l.ordinal AND g.repeat = 0
    WHERE l.batch_id = :batch AND l.line > :after ORDER BY l.line LIMIT :n""")
UNANSWERED = {
    "completed": ("batch_cancelled", "the job that answers this line was cancelled"),
    "expired": ("batch_expired", "this request could not be answered before the completion window expired"),
    "cancelled": ("batch_cancelled", "the batch was cancelled before this request was answered"),
}
"""Code and message of a line that was not answered, by how its batch ended."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Holds the encoded result of one line, and the tokens that it adds to the batch's usage."""

    answered: bool
    content: bytes
    """Line of the output file, or of the error file."""
    prompt_tokens: int = 0
    completion_tokens: int = 0


async def read_results(connection: AsyncConnection, batch: StoredBatch) -> AsyncIterator[list[Result]]:
    """Yield the results of all lines in the order of the input file, page by page."""
    after, page = 0, PAGE_OF_VECTORS if batch.endpoint == EMBEDDINGS else PAGE
    while True:
        values = {"batch": batch.id, "after": after, "n": page}
        rows = (await connection.execute(SELECT_LINES, values)).mappings().all()
        if not rows:
            return
        after = rows[-1]["line"]
        answers = await read_answers(connection, rows)
        yield [_make_result(batch, row, answers.get(row["line"])) for row in rows]


def _make_result(batch: StoredBatch, row: RowMapping, answer: Answer | MathragError | None) -> Result:
    """Build the result: a line that failed on its own has a response with a status; a line that was cut off has an
    error and no response.
    """
    status, body, error = 200, None, None
    if isinstance(answer, Answer):
        body = answer.body
    elif failure := answer or _find_failure(batch, row):
        status = 400 if failure.status == 422 else failure.status
        field = make_problem(failure, "").field
        body = msgspec.json.decode(encode_openai_error(status, failure.kind, failure.message, failure.hint, field))
    else:
        code, message = UNANSWERED[batch.ends_as]
        error = {"code": code, "message": message}
    name = f"{batch.public_id.hex}-{row['line']}"
    response = None if error else {"status_code": status, "request_id": f"req_{name}", "body": body}
    # Equal rows always give equal bytes.
    line = {"id": f"batch_req_{name}", "custom_id": row["custom_id"], "response": response, "error": error}
    content = msgspec.json.encode(line) + b"\n"
    if not isinstance(answer, Answer):
        return Result(answered=False, content=content)
    tokens = {"prompt_tokens": answer.prompt_tokens, "completion_tokens": answer.completion_tokens}
    return Result(answered=True, content=content, **tokens)


def _find_failure(batch: StoredBatch, row: RowMapping) -> MathragError | None:
    """Return why the line's sample or its job failed; None if it was cut off."""
    if row["state"] not in (SampleState.COMPLETED, SampleState.FAILED) and row["job_state"] != "failed":
        return None
    reason = f"{row['failure']}: {row['detail']}" if row["failure"] else row["reason"] or "nothing was generated"
    return make_failure(reason, row["job"], row["ordinal"], "input" if batch.endpoint == EMBEDDINGS else "messages")


async def finish(database: Database, batch: StoredBatch) -> bool:
    """End a batch that is finalizing or cancelling; return False while its jobs run or another process ends it.

    Running calls are stopped. The files are written in one transaction with the end.
    """
    if jobs := await batches.list_live_jobs(database, batch.id):
        await cancel_all(database, jobs)
        return False
    async with database.transaction() as connection:
        if not await batches.lock(connection, batch.id):
            return False
        output, errors, counts = files.Writer(connection), files.Writer(connection), Counter[str]()
        async for page in read_results(connection, batch):
            counts["completed"] += sum(each.answered for each in page)
            counts["failed"] += sum(not each.answered for each in page)
            counts["prompt_tokens"] += sum(each.prompt_tokens for each in page)
            counts["completion_tokens"] += sum(each.completion_tokens for each in page)
            await output.write(b"".join(each.content for each in page if each.answered))
            await errors.write(b"".join(each.content for each in page if not each.answered))
        # The batch has failed if no line was answered, even if all lines were valid.
        none_answered = batch.ends_as == "completed" and not counts["completed"]
        message = f"none of the {counts['failed']} requests was answered; the error file has the reason of each"
        output_file, error_file = await _store(output, batch, "output"), await _store(errors, batch, "error")
        ended = Ended(
            state="failed" if none_answered else batch.ends_as,
            completed=counts["completed"],
            failed=counts["failed"],
            prompt_tokens=counts["prompt_tokens"],
            completion_tokens=counts["completion_tokens"],
            output_file=output_file.id if output_file else None,
            error_file=error_file.id if error_file else None,
            errors=[{"code": "all_requests_failed", "message": message}] if none_answered else None,
        )
        await batches.end(connection, batch.id, ended)
    return True


async def _store(writer: files.Writer, batch: StoredBatch, name: str) -> File | None:
    kept_s = batch.output_s or files.KEPT_S
    return await writer.finish(f"{format_id(BATCH, batch.public_id)}_{name}.jsonl", "batch_output", kept_s)


LOOK_S = 1.0
AGAIN_S = 30.0
"""Seconds to wait before a batch that could not be advanced is tried again."""

_log = logging.getLogger(__name__)


class BatchAdvancer(Routine):
    """Advances one batch after the other, one step at a time; one that cannot be advanced does not delay the others.

    The steps are: check the lines, wait for the jobs, write the files. A step that was killed is repeated.
    """

    def __init__(self, database: Database, settings: Settings, started: Callable[[], None] = lambda: None) -> None:
        """`started` is called when a batch has got its jobs."""
        super().__init__()
        self._database = database
        self._settings = settings
        self._started = started
        self._not_before: dict[int, float] = {}
        """Monotonic time of the next try, by the id of a batch that could not be advanced."""

    async def run_once(self) -> float:
        """Take one step of every live batch, and delete expired files."""
        has_advanced = [await self._advance(batch) for batch in await batches.list_live(self._database)]
        await files.delete_expired(self._database)
        return 0.0 if any(has_advanced) else LOOK_S

    async def _advance(self, batch: StoredBatch) -> bool:
        if time.monotonic() < self._not_before.get(batch.id, 0.0):
            return False
        try:
            with limit_to(batch.project or SHARED):
                has_advanced = await advance_batch(self._database, self._settings, batch)
        except Exception as error:
            if is_passing(error):
                raise
            # Fail a batch for which nothing was computed; otherwise try it again, so that no answer is lost.
            _log.exception("%s cannot be brought on", format_id(BATCH, batch.public_id))
            if batch.state == "validating":
                message = "the service failed to read the file; its log has the reason"
                await batches.fail(self._database, batch.id, [{"code": "internal_error", "message": message}])
            self._not_before[batch.id] = time.monotonic() + AGAIN_S
            return False
        if has_advanced and batch.state == "validating":
            self._started()
        return has_advanced


async def advance_batch(database: Database, settings: Settings, batch: StoredBatch) -> bool:
    """Advance the batch to its next state; return False if it has to wait."""
    if batch.state in ("finalizing", "cancelling"):
        return await finish(database, batch)
    if batch.is_over:
        await batches.finalize(database, batch.id, "expired")
        return True
    if batch.state == "validating":
        return await validate(database, settings, batch)
    if await batches.list_live_jobs(database, batch.id):
        return False
    await batches.finalize(database, batch.id, "completed")
    return True
