"""What an Ollama server says to a prompt, piece by piece: an answer, one that it cut off, or why there is none."""

from collections.abc import Sequence
from typing import Any

import httpx2
import msgspec

from shared.contracts.guard import ModelAnswer
from shared.contracts.replies import FailureKind
from shared.models.chat import AWAY, CUT, REPETITION, Away, ChatFailed
from shared.models.logprobs import tokens

SIGNS_OF_LENGTH = ("exceed_context_size", "exceeds the context length", "exceeds the available context")
"""How its runners say that a prompt does not fit."""
SIGNS_OF_DEATH = (
    "error was encountered while running the model", "llama-server process has terminated",
    "runner process has terminated", "runner has unexpectedly stopped", "out of memory", "CUDA error",
)  # fmt: skip
"""How it says that a runner is gone, or on a GPU that it can use no more (ollama#9782, #11421): the first in all
versions, the second since 0.30."""
REPEATS = 30
"""Pieces of an answer in a row that are equal but for blanks; at one or two more Ollama stops it (llm/server.go)."""
SIGN_OF_REPETITION = "token repeat limit reached"
"""What some versions say when they do; others (0.33.0) just end the stream."""


class Reloaded(ChatFailed):
    """The call was answered by a runner that is not the one that was verified; the connection to that one was lost."""


class RunnerDied(ChatFailed):
    """The process that held the model is gone, and with it all calls that it answered at the time."""


class Removed(ChatFailed):
    """The server has no model of that name any more; the one that it loaded may still be there."""


class Cut(ChatFailed):
    """The server answered what was left of the prompt."""


class _Message(msgspec.Struct, frozen=True):
    content: str = ""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an answer; the last one has the figures, durations in nanoseconds, or an error."""

    message: _Message = _Message()
    error: str = ""
    done: bool = False
    done_reason: str = ""
    load_duration: int = 0
    prompt_eval_count: int | None = None
    prompt_eval_duration: int | None = None
    eval_count: int | None = None
    eval_duration: int | None = None
    logprobs: Any = None


async def pieces(response: httpx2.Response) -> list[Piece]:
    """An answer as it comes in.

    Raises:
        ChatFailed: the server refuses, or sends what is no answer.
    """
    if response.status_code != httpx2.codes.OK:
        await response.aread()
        if SIGN_OF_REPETITION not in response.text:
            raise _refused(response)
        return [Piece(error=response.text)]
    try:
        found = [msgspec.json.decode(line, type=Piece) async for line in response.aiter_lines() if line]
    except msgspec.MsgspecError as error:
        raise ChatFailed(FailureKind.BACKEND_ERROR, f"no answer of Ollama: {error}") from error
    if not found:
        raise ChatFailed(FailureKind.BACKEND_ERROR, "Ollama sent an empty stream")
    return found


def reply(found: Sequence[Piece], *, room: int, reload_s: float) -> ModelAnswer:
    """The answer; one that the server ended without calling it done is kept, and named as a cut one.

    `room`: tokens of a slot. `reload_s`: seconds of a load from which it is another one.

    Raises:
        ChatFailed: it is none by the loaded model to the whole prompt.
    """
    last = found[-1]
    if last.error and SIGN_OF_REPETITION not in last.error:
        raise _ended_with(last.error)
    if last.load_duration > reload_s * 1e9:
        took = f"{last.load_duration / 1e9:.1f} s"
        raise Reloaded(FailureKind.CONNECTION, f"the model was loaded again within its residency, in {took}")
    if last.done and last.done_reason not in ("stop", "length"):
        raise ChatFailed(FailureKind.BACKEND_ERROR, f"the answer was broken off (reason {last.done_reason!r})")
    if (last.prompt_eval_count or 0) >= room:
        raise Cut(FailureKind.CONTEXT_EXCEEDED, f"the prompt was cut to the {room} tokens of the context")
    return ModelAnswer(
        text="".join(piece.message.content for piece in found),
        finish_reason=last.done_reason if last.done else _cut_by(found),
        tokens=tokens([entry for piece in found for entry in piece.logprobs or ()]),
        prompt_tokens=last.prompt_eval_count,
        completion_tokens=last.eval_count,
        prompt_ms=_milliseconds(last.prompt_eval_duration),
        completion_ms=_milliseconds(last.eval_duration),
    )


def _cut_by(found: Sequence[Piece]) -> str:
    """Why the server ended an answer that it does not call done; bytes that are no UTF-8 it does not mention."""
    if found[-1].error:
        return REPETITION
    last = [piece.message.content.strip() for piece in found[-REPEATS:]]
    return REPETITION if len(last) == REPEATS and len(set(last)) == 1 else CUT


def _ended_with(said: str) -> ChatFailed:
    """An error at the end of a stream that had begun."""
    if any(sign in said for sign in SIGNS_OF_DEATH):
        return RunnerDied(FailureKind.CONNECTION, said[:500])
    return ChatFailed(FailureKind.BACKEND_ERROR, f"the server ended its stream with {said[:500]!r}")


def _refused(response: httpx2.Response) -> ChatFailed:
    """A prompt that does not fit is a fact about the prompt, every other refusal one about the server.

    A runner's death looks like a lost connection: what ran on it may have killed it.
    """
    body = response.text[:500]
    if response.is_server_error and any(sign in body for sign in SIGNS_OF_DEATH):
        return RunnerDied(FailureKind.CONNECTION, body)
    if response.status_code == httpx2.codes.NOT_FOUND:
        return Removed(FailureKind.CONNECTION, body)
    if response.status_code == httpx2.codes.BAD_REQUEST and any(sign in body for sign in SIGNS_OF_LENGTH):
        return ChatFailed(FailureKind.CONTEXT_EXCEEDED, body)
    said = f"HTTP {response.status_code}: {body}"
    return Away(said) if response.status_code in AWAY else ChatFailed(FailureKind.BACKEND_ERROR, said)


def _milliseconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6
