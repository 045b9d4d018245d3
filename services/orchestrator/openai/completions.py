"""Writes chat completions in the form that OpenAI's clients read: whole, or as a stream of chunks."""

from collections.abc import Iterator
from typing import Any

import msgspec

DONE = b"data: [DONE]\n\n"


class ChatCompletion(msgspec.Struct, frozen=True, kw_only=True):
    """Holds an answer with its usage, and writes it whole or as chunks."""

    id: str
    created: int
    """Creation time in seconds since 1970."""
    model: str
    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    extension: dict[str, Any]
    """The field `mathrag`: the job, and what a pipeline answers beside the text."""

    @property
    def usage(self) -> dict[str, int]:
        """Return the usage with OpenAI's field names."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }

    def body(self) -> dict[str, Any]:
        """Return the answer as a `chat.completion`."""
        message = {"role": "assistant", "content": self.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": self.finish_reason}
        return {
            **self._make_head("chat.completion"),
            "choices": [choice],
            "usage": self.usage,
            "mathrag": self.extension,
        }

    def chunks(self, *, include_usage: bool) -> Iterator[bytes]:
        """Yield the answer as server-sent events: role, text, end, and the usage if it is requested."""
        yield self._make_chunk({"role": "assistant", "content": "", "refusal": None}, None)
        yield self._make_chunk({"content": self.text}, None)
        yield self._encode_event({**self._make_choice({}, self.finish_reason), "mathrag": self.extension})
        if include_usage:
            yield self._encode_event({**self._make_head("chat.completion.chunk"), "choices": [], "usage": self.usage})
        yield DONE

    def _make_chunk(self, delta: dict[str, Any], finish_reason: str | None) -> bytes:
        return self._encode_event(self._make_choice(delta, finish_reason))

    def _make_choice(self, delta: dict[str, Any], finish_reason: str | None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {**self._make_head("chat.completion.chunk"), "choices": [choice]}

    def _make_head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}

    @staticmethod
    def _encode_event(value: dict[str, Any]) -> bytes:
        return b"data: " + msgspec.json.encode(value) + b"\n\n"
