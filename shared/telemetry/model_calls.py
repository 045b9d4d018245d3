"""Spans of model calls, by OpenTelemetry's GenAI conventions and OpenInference."""

import json
from contextlib import AbstractContextManager

from opentelemetry.trace import Span, SpanKind

from shared.contracts.guard import End, ModelAnswer, ModelCall
from shared.contracts.prompts import text_of
from shared.telemetry import conventions as names
from shared.telemetry import traces


def open_span(call: ModelCall, *, model: str, backend: str, concurrency: int) -> AbstractContextManager[Span]:
    """Open the span around one call; requests inside it carry it to the model server."""
    attributes = {
        names.OPERATION: "chat",
        names.PROVIDER: backend,
        names.REQUEST_MODEL: model,
        names.REQUEST_TEMPERATURE: call.decoding.temperature,
        names.REQUEST_MAX_TOKENS: call.decoding.max_tokens,
        names.REQUEST_SEED: call.seed,
        names.SPAN_KIND: names.LLM,
        names.MODEL_NAME: model,
        "mathrag.call.id": call.id,
        "mathrag.concurrency": concurrency,
    }
    return traces.span(f"chat {model}", attributes, kind=SpanKind.CLIENT)


def record_answer(noted: Span, call: ModelCall, answer: ModelAnswer) -> None:
    """Add to the call's span what the model server answered."""
    attributes = {
        names.RESPONSE_FINISH_REASONS: [answer.finish_reason] if answer.finish_reason else None,
        names.INPUT_TOKENS: answer.prompt_tokens,
        names.OUTPUT_TOKENS: answer.completion_tokens,
        names.PROMPT_TOKENS: answer.prompt_tokens,
        names.COMPLETION_TOKENS: answer.completion_tokens,
    }
    noted.set_attributes(traces.drop_none(attributes))
    if traces.keeps_content():
        noted.set_attributes(_content(text_of(call.prompt), answer.text))
    failure = answer.failure or (answer.end if answer.end is not End.ANSWERED else None)
    if failure:
        traces.fail(noted, failure.value)


def _content(prompt: str, text: str) -> dict[str, str]:
    return {
        names.INPUT: prompt,
        names.OUTPUT: text,
        names.INPUT_MESSAGES: _message("user", prompt),
        names.OUTPUT_MESSAGES: _message("assistant", text),
    }


def _message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}], ensure_ascii=False)
