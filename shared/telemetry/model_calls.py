"""A model call as a span, in the words of OpenTelemetry's GenAI conventions and of OpenInference."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from shared.contracts.guard import End, ModelCall
from shared.telemetry import conventions as names
from shared.telemetry import traces


class Noted:
    """A call that is being made: says how it went."""

    def __init__(self, call: ModelCall, span: traces.Span) -> None:
        self._call = call
        self._span = span

    def ended(self, result: Mapping[str, Any]) -> None:
        """Note what the model server answered, as the guard's completion has it."""
        self._span.set(
            {
                names.RESPONSE_FINISH_REASONS: [result["finish_reason"]] if result.get("finish_reason") else None,
                names.INPUT_TOKENS: result.get("prompt_tokens"),
                names.OUTPUT_TOKENS: result.get("completion_tokens"),
                names.PROMPT_TOKENS: result.get("prompt_tokens"),
                names.COMPLETION_TOKENS: result.get("completion_tokens"),
            }
        )
        if traces.content():
            self._span.set(_content(self._call.prompt, result.get("text", "")))
        failure = result.get("failure") or (result["end"] if result.get("end", End.ANSWERED) != End.ANSWERED else None)
        if failure:
            self._span.fail(failure.value)


@contextmanager
def noted(call: ModelCall, *, model: str, backend: str, concurrency: int) -> Iterator[Noted]:
    """The span around one call; what is sent meanwhile carries it to the model server."""
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
    with traces.span(f"chat {model}", attributes, kind=traces.Kind.CLIENT) as span:
        yield Noted(call, span)


def _content(prompt: str, text: str) -> traces.Attributes:
    return {
        names.INPUT: prompt,
        names.OUTPUT: text,
        names.INPUT_MESSAGES: _message("user", prompt),
        names.OUTPUT_MESSAGES: _message("assistant", text),
    }


def _message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}], ensure_ascii=False)
