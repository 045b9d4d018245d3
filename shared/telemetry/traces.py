"""Traces: names, references between them, spans of rows and of model calls, and their export."""

import asyncio
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, NoOpTracer, Span, SpanContext, SpanKind, TraceFlags, Tracer
from opentelemetry.trace.status import Status, StatusCode

from shared.calls import End, ModelAnswer, ModelCall, text_of

# Names in spans, by OpenTelemetry's GenAI conventions and OpenInference, which viewers understand.
#
# They are written out here because the packages that define them change often and would be needed in every process.

SCHEMA_URL = "https://opentelemetry.io/schemas/1.44.0"
"""Version of OpenTelemetry's semantic conventions, whose GenAI part is still in development."""
ERROR_TYPE = "error.type"
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_SEED = "gen_ai.request.seed"
RESPONSE_FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SPAN_KIND = "openinference.span.kind"
CHAIN, LLM, RETRIEVER, RERANKER = "CHAIN", "LLM", "RETRIEVER", "RERANKER"
EMBEDDING, EVALUATOR, TOOL = "EMBEDDING", "EVALUATOR", "TOOL"
KINDS_OF_ROLE = {
    "retrieve": RETRIEVER,
    "rerank": RERANKER,
    "embed": EMBEDDING,
    "grade": EVALUATOR,
    "verify": EVALUATOR,
    "execute": TOOL,
    "estimate": EVALUATOR,
    "rules": RETRIEVER,
}
"""OpenInference's kind of span by role, for calls that no model server answers."""
MODEL_NAME = "llm.model_name"
PROMPT_TOKENS = "llm.token_count.prompt"
COMPLETION_TOKENS = "llm.token_count.completion"
INPUT = "input.value"
OUTPUT = "output.value"


def document_attribute(rank: int, what: str) -> str:
    """Return OpenInference's name for a retrieved document's `id` or `score`; `rank` counts from 0."""
    return f"retrieval.documents.{rank}.document.{what}"


# References to spans. Those of jobs and samples follow from their ids, so that any process can link to them.

TRACEPARENT = re.compile(r"[\da-f]{2}-(?P<trace>[\da-f]{32})-(?P<span>[\da-f]{16})-[\da-f]{2}")


class SpanRef(NamedTuple):
    """The two ids of a span."""

    trace: int
    span: int

    @property
    def trace_id(self) -> str:
        """The trace id as 32 hex digits."""
        return f"{self.trace:032x}"


def make_job_ref(public_id: uuid.UUID) -> SpanRef:
    """Refer to a job's span: its trace has the job's id, and its span the lower half of it."""
    return SpanRef(public_id.int, public_id.int & (1 << 64) - 1)


def make_sample_ref(public_id: uuid.UUID, sample_id: int) -> SpanRef:
    """Refer to a sample's span, which is in its job's trace and has the id of the sample's row.

    It never equals the job's span id: the lower half of a random UUID begins with a set bit, and row ids do not.
    """
    return SpanRef(public_id.int, sample_id)


def parse_traceparent(traceparent: str | None) -> SpanRef | None:
    """Parse a W3C `traceparent`; None if it is missing or malformed."""
    found = TRACEPARENT.fullmatch(traceparent or "")
    return SpanRef(int(found["trace"], 16), int(found["span"], 16)) if found else None


# Make spans with OpenTelemetry's API, which does nothing until `install_tracer` is called.

UNTRACED = ("/healthz", "/readyz", "/metrics", "/state")
"""Paths that machines poll, whose spans would bury the others."""
Attributes = Mapping[str, Any]
"""Attributes of a span; those that are None are left out."""
_OFF = NoOpTracer()
_tracer: Tracer = _OFF
_exports_content = False
chosen_ids: ContextVar[SpanRef | None] = ContextVar("given", default=None)
"""The ids of the span that is being made, if they were chosen before."""


def install_tracer(tracer: Tracer = _OFF, *, content: bool = False) -> None:
    """Trace with `tracer`, by default not at all; `content` allows prompts, answers and questions in spans."""
    global _tracer, _exports_content  # one per process, like the provider behind it
    _tracer, _exports_content = tracer, content


def is_on() -> bool:
    """Tell whether this process makes spans."""
    return _tracer is not _OFF


def keeps_content() -> bool:
    """Tell whether spans may contain prompts, answers and questions."""
    return _exports_content


@contextmanager
def span(
    name: str,
    attributes: Attributes | None = None,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    links: Iterable[SpanRef | None] = (),
    root: bool = False,
) -> Iterator[Span]:
    """Open a span around the block: a child of the current one or, as a `root`, with its own trace.

    An exception's type is recorded, but not its message, which may contain what users wrote.
    """
    with _tracer.start_as_current_span(
        name,
        context=Context() if root else None,
        kind=kind,
        attributes=drop_none(attributes or {}),
        links=[Link(_span_context(link)) for link in links if link is not None],
        record_exception=False,
        set_status_on_exception=False,
    ) as opened:
        try:
            yield opened
        except (Exception, asyncio.CancelledError) as error:
            fail(opened, type(error).__name__)
            raise


def fail(failed: Span, kind: str) -> None:
    """Mark a span as failed with a `kind` instead of a message, which may contain what users wrote."""
    failed.set_attribute(ERROR_TYPE, kind)
    failed.set_status(Status(StatusCode.ERROR, kind))


def add_past_span(
    name: str,
    begun: datetime,
    ended: datetime,
    attributes: Attributes,
    *,
    ref: SpanRef | None = None,
    parent: SpanRef | None = None,
    events: Iterable[tuple[str, datetime]] = (),
    failure: str | None = None,
) -> None:
    """Make a span of something that has ended, with the ids of `ref` if given."""
    token = chosen_ids.set(ref)
    try:
        # The context of a past span: its parent's; without one, a root if it has chosen ids, else the current.
        if parent is None:
            parent_context = Context() if ref else None
        else:
            parent_context = trace.set_span_in_context(NonRecordingSpan(_span_context(parent)), Context())
        made = _tracer.start_span(
            name, context=parent_context, attributes=drop_none(attributes), start_time=_to_ns(begun)
        )
    finally:
        chosen_ids.reset(token)
    for event, at in events:
        made.add_event(event, timestamp=_to_ns(at))
    if failure:
        fail(made, failure)
    made.end(_to_ns(ended))


def link(ref: SpanRef) -> None:
    """Link the current span to another, which may not exist yet."""
    trace.get_current_span().add_link(_span_context(ref))


def find_current() -> SpanRef | None:
    """Return the span around the caller; None outside of any."""
    found = trace.get_current_span().get_span_context()
    return SpanRef(found.trace_id, found.span_id) if found.is_valid else None


def drop_none(attributes: Attributes) -> dict[str, Any]:
    """Drop attributes that are None, of which OpenTelemetry warns."""
    return {name: value for name, value in attributes.items() if value is not None}


def make_server_options() -> Any:
    """Return the options of `FastAPI(telemetry=...)`: one span per request, but none for `UNTRACED`."""
    return {
        "operation_spans": False, "logs": False, "metrics": False,
        "exclude": lambda scope: scope.get("path") in UNTRACED,
    }  # fmt: skip


def _span_context(ref: SpanRef) -> SpanContext:
    return SpanContext(ref.trace, ref.span, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _to_ns(at: datetime) -> int:
    return int(at.timestamp() * 1e9)


# Spans of model calls, by OpenTelemetry's GenAI conventions and OpenInference.


def open_span(call: ModelCall, *, model: str, backend: str, concurrency: int) -> AbstractContextManager[Span]:
    """Open the span around one call; requests inside it carry it to the model server."""
    attributes = {
        OPERATION: "chat",
        PROVIDER: backend,
        REQUEST_MODEL: model,
        REQUEST_TEMPERATURE: call.decoding.temperature,
        REQUEST_MAX_TOKENS: call.decoding.max_tokens,
        REQUEST_SEED: call.seed,
        SPAN_KIND: LLM,
        MODEL_NAME: model,
        "mathrag.call.id": call.id,
        "mathrag.concurrency": concurrency,
    }
    return span(f"chat {model}", attributes, kind=SpanKind.CLIENT)


def record_answer(noted: Span, call: ModelCall, answer: ModelAnswer) -> None:
    """Add the model server's answer to the call's span."""
    attributes = {
        RESPONSE_FINISH_REASONS: [answer.finish_reason] if answer.finish_reason else None,
        INPUT_TOKENS: answer.prompt_tokens,
        OUTPUT_TOKENS: answer.completion_tokens,
        PROMPT_TOKENS: answer.prompt_tokens,
        COMPLETION_TOKENS: answer.completion_tokens,
    }
    noted.set_attributes(drop_none(attributes))
    if keeps_content():
        prompt = text_of(call.prompt)
        content = {
            INPUT: prompt,
            OUTPUT: answer.text,
            INPUT_MESSAGES: _message("user", prompt),
            OUTPUT_MESSAGES: _message("assistant", answer.text),
        }
        noted.set_attributes(content)
    failure = answer.failure or (answer.end if answer.end is not End.ANSWERED else None)
    if failure:
        fail(noted, failure.value)


def _message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}], ensure_ascii=False)
