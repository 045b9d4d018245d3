"""Reads the lines of a batch, checks each as the same request on its own would be, and collects the errors by line."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from services.orchestrator.access.values import check_body
from services.orchestrator.api.problems import make_openai_refusal, make_problem
from services.orchestrator.openai.chat_requests import ChatCompletionRequest
from services.orchestrator.openai.embeddings import EmbeddingsRequest
from services.orchestrator.openai.names import ModelNotFound, NamedModel, find_named
from shared.calls import MAX_QUESTION, Decoding
from shared.errors import Invalid, MathragError
from shared.runtime.submit import question_for
from shared.samples import Conversation, Texts

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
    """Reads a file chunk by chunk; only one chunk and one line are in memory."""

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
            yield self._read_request(content)
        except MathragError as error:
            self._note(describe_error(error, CODES.get(type(error), "invalid_request"), self._number))

    def _read_request(self, content: bytes) -> Line:
        line = _decode(content)
        self._check_custom_id(line.custom_id)
        if line.method != "POST":
            raise Invalid("`method`: must be POST")
        if line.url != self._endpoint:
            raise Invalid(f"`url`: is {line.url[:100]!r}, but the batch's endpoint is {self._endpoint!r}")
        check_body(line.body)
        return self._read_embedding(line) if self._endpoint == EMBEDDINGS else self._read_chat(line)

    def _read_embedding(self, line: RequestLine) -> Line:
        request = _parse(EmbeddingsRequest, line.body)
        model = find_named(self._models, request.model, "embedder")
        self._inputs += len(request.input)
        if self._inputs > MOST_INPUTS:
            raise Stopped(LineError(code="too_many_inputs", message=f"a batch may embed {MOST_INPUTS} texts"))
        texts = Texts(
            texts=tuple(request.input), encoding=request.encoding_format, dimensions=request.dimensions
        )  # fmt: skip
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
