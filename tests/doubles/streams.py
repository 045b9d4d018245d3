"""Answers in pieces, as model servers send them: events for OpenAI's chat, lines for Ollama's own.

The forms are those of recorded exchanges (vLLM 0.32.0, llama-server b10434, Ollama 0.33.0; 2026-11-22).
"""

import json
import re
from typing import Any

EVENTS = "text/event-stream"
LINES = "application/x-ndjson"
WORD = re.compile(r"\s*\S+\s*$|\s*\S+|\s+$")
"""What counts as a token here."""

Streamed = tuple[bytes, str]
"""A body and its content type."""


def as_asked(request: bytes, reply: bytes) -> Streamed | None:
    """A whole answer in pieces, where the request wants a stream; None for what goes out as it is."""
    try:
        asked, whole = (json.loads(request), json.loads(reply)) if request and reply else ({}, {})
    except ValueError:
        return None
    if not (isinstance(asked, dict) and asked.get("stream") and isinstance(whole, dict)):
        return None
    if "choices" in whole:
        return events(*_chunks(whole)), EVENTS
    return (lines(*_lines(whole)), LINES) if "message" in whole else None


def events(*data: Any) -> bytes:
    """Server-sent events; the word that the stream is over goes out as it is."""
    return "".join(f"data: {each if each == '[DONE]' else json.dumps(each)}\n\n" for each in data).encode()


def lines(*data: Any) -> bytes:
    """Write one JSON document a line."""
    return "".join(json.dumps(each) + "\n" for each in data).encode()


def _chunks(whole: dict[str, Any]) -> list[Any]:
    """The role, the pieces, the end, the figures, and the word that it is over."""
    base = {name: value for name, value in whole.items() if name not in ("choices", "usage", "timings")}
    figures = {name: whole[name] for name in ("usage", "timings") if name in whole}
    deltas = [[each] for choice in whole["choices"][:1] for each in _deltas(choice)]
    return [*({**base, "choices": each} for each in deltas), {**base, "choices": [], **figures}, "[DONE]"]


def _deltas(choice: dict[str, Any]) -> list[dict[str, Any]]:
    if "message" not in choice:
        return [choice]
    logprobs = (choice.get("logprobs") or {}).get("content")
    pieces = _pieces(choice["message"].get("content") or "", logprobs)
    deltas = [{"role": "assistant", "content": None}, *({"content": text} for text, _ in pieces), {}]
    made: list[dict[str, Any]] = [{"index": 0, "delta": each, "finish_reason": None} for each in deltas]
    for each, (_, entries) in zip(made[1:], pieces, strict=False):
        each |= {"logprobs": {"content": entries}} if entries else {}
    made[-1]["finish_reason"] = choice.get("finish_reason")
    return made


def _lines(whole: dict[str, Any]) -> list[dict[str, Any]]:
    """The pieces, and a line with the figures, which an answer that is broken off lacks."""
    logprobs = whole.pop("logprobs", None)
    made: list[dict[str, Any]] = [
        {"model": whole.get("model", ""), "message": {"role": "assistant", "content": text}, "done": False}
        | ({"logprobs": entries} if entries else {})
        for text, entries in _pieces(whole["message"].get("content") or "", logprobs)
    ]
    last = {**whole, "message": {"role": "assistant", "content": ""}}
    return [*made, last] if whole.get("done", True) else made


def _pieces(text: str, logprobs: Any) -> list[tuple[str, Any]]:
    """The text in words, each with its log-probability; where there are not as many, all of them with the last one."""
    words = WORD.findall(text)
    if isinstance(logprobs, list) and len(logprobs) == len(words):
        return [(word, [entry]) for word, entry in zip(words, logprobs, strict=True)]
    return [*((word, None) for word in words[:-1]), *((word, logprobs) for word in words[-1:])]
