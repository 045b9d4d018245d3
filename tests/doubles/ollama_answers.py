"""How the double of Ollama says an answer: whole or as a stream, cut where the real server cuts it."""

import json
import re
from collections.abc import Iterator
from typing import Any

from tests.doubles.answers import by_word
from tests.doubles.chat_server import Reply, as_json, as_lines
from tests.doubles.ollama_models import stamp

MILLISECOND = 1_000_000
REPEATS = 31
"""So often the same token in a row ends an answer, with no word of why."""


def pieces(text: str, most: int) -> tuple[list[str], str | None]:
    """Return an answer's tokens, which are its words here, and why it ended; None if it repeated itself."""
    found: list[str] = []
    repeats = 0
    for piece in re.findall(r" ?[^ ]+| +", text):
        if most >= 0 and len(found) >= most:
            return found, "length"
        repeats = repeats + 1 if found and found[-1].strip() == piece.strip() else 1
        if repeats > REPEATS:
            return found, None
        found.append(piece)
    return found, "stop"


def answer(body: dict[str, Any], text: str, *, prompt_tokens: int, loaded_ns: int, instead: dict[str, Any]) -> Reply:
    """Make the reply to a call; the fields of `instead` replace its own."""
    most = (body.get("options") or {}).get("num_predict", -1)
    said, ended = pieces(instead.get("message", {}).get("content", text), most)
    last: dict[str, Any] = {"done": False}
    if ended is not None:
        last = {
            "done": True, "done_reason": ended, "total_duration": loaded_ns + 9 * MILLISECOND,
            "load_duration": loaded_ns, "prompt_eval_count": prompt_tokens, "prompt_eval_duration": 3 * MILLISECOND,
            "eval_count": len(said), "eval_duration": 2 * MILLISECOND + MILLISECOND // 2,
        }  # fmt: skip
    last |= {key: value for key, value in instead.items() if key != "message"}
    logprobs = by_word("".join(said), body["top_logprobs"]) if body.get("logprobs") else []
    if body.get("stream", True):
        return as_lines(_stream(body["model"], said, last, logprobs))
    return as_json(_part(body["model"], "".join(said)) | last | ({"logprobs": logprobs} if logprobs else {}))


def overflow(tokens: int, room: int) -> dict[str, str]:
    """How a prompt that does not fit is refused: the runner's error, as a string."""
    said = f"request ({tokens} tokens) exceeds the available context size ({room} tokens), try increasing it"
    inner = {
        "code": 400,
        "message": said,
        "type": "exceed_context_size_error",
        "n_prompt_tokens": tokens,
        "n_ctx": room,
    }
    return {"error": json.dumps({"error": inner}, separators=(",", ":"))}


def _stream(
    model: str, said: list[str], last: dict[str, Any], logprobs: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    for number, piece in enumerate(said):
        part = _part(model, piece) | {"done": False}
        yield part | ({"logprobs": logprobs[number : number + 1]} if logprobs else {})
    if last["done"]:
        yield _part(model, "") | last


def _part(model: str, content: str) -> dict[str, Any]:
    return {"model": model, "created_at": stamp(), "message": {"role": "assistant", "content": content}}
