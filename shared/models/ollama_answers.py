"""Read Ollama's answer to a prompt: a complete answer, one that the server cut off, or a failure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import httpx2
import msgspec

from shared.contracts.guard import ModelAnswer
from shared.contracts.replies import FailureKind
from shared.models.chat import AWAY_STATUSES, CUT, REPETITION, ChatFailed, ServerAway
from shared.models.logprobs import parse_tokens
from shared.models.streams import read_lines

SIGNS_OF_LENGTH = ("exceed_context_size", "exceeds the context length", "exceeds the available context")
"""Parts of its runners' messages that a prompt does not fit."""
SIGNS_OF_DEATH = (
    "error was encountered while running the model", "llama-server process has terminated",
    "runner process has terminated", "runner has unexpectedly stopped", "out of memory", "CUDA error",
)  # fmt: skip
"""Parts of its messages that a runner is gone, or that its GPU cannot be used any more (ollama#9782, #11421): the first
in all versions, the second since 0.30."""
REPEATS = 30
"""Equal pieces in a row, but for blanks, that count as repetition; Ollama stops at one or two more (llm/server.go)."""
SIGN_OF_REPETITION = "token repeat limit reached"
"""Part of the message with which some versions stop; others (0.33.0) just end the stream."""


class TimedAnswer(NamedTuple):
    """An answer, and the seconds for which the call waited for its model."""

    answer: ModelAnswer
    load_s: float
    """Milliseconds where the model is loaded, tenths of a second on a busy host; longer where it had to be loaded."""


class RunnerDied(ChatFailed):
    """The process that held the model died, and with it all calls that it was answering."""


class ModelRemoved(ChatFailed):
    """The server has no model of that name any more, though it may still have it loaded."""


class PromptTruncated(ChatFailed):
    """The server answered a truncated prompt."""


class _Message(msgspec.Struct, frozen=True):
    content: str = ""


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an answer; the last one has the figures, with durations in nanoseconds, or an error."""

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


async def read_pieces(response: httpx2.Response) -> list[Piece]:
    """Read the pieces of an answer.

    Raises:
        ChatFailed: the server refuses, or sends a malformed answer.
    """
    if response.status_code != httpx2.codes.OK:
        await response.aread()
        if SIGN_OF_REPETITION not in response.text:
            raise _translate_refusal(response)
        return [Piece(error=response.text)]
    try:
        found = [msgspec.json.decode(line, type=Piece) async for line in read_lines(response)]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ChatFailed(FailureKind.BACKEND_ERROR, f"the answer is not Ollama's: {error}") from error
    if not found:
        raise ChatFailed(FailureKind.BACKEND_ERROR, "Ollama sent an empty stream")
    return found


def make_answer(found: Sequence[Piece], *, room: int) -> TimedAnswer:
    """Make the answer from its pieces; one that the server ended early is kept, with the reason of the cut.

    `room` is the tokens of a slot.

    Raises:
        ChatFailed: it is not an answer of the loaded model to the whole prompt.
    """
    last = found[-1]
    if last.error and SIGN_OF_REPETITION not in last.error:
        raise _translate_stream_error(last.error)
    if last.done and last.done_reason not in ("stop", "length"):
        raise ChatFailed(FailureKind.BACKEND_ERROR, f"the server ended the answer with reason {last.done_reason!r}")
    if (last.prompt_eval_count or 0) >= room:
        raise PromptTruncated(
            FailureKind.CONTEXT_EXCEEDED, f"the prompt was truncated to the {room} tokens of the context"
        )
    answer = ModelAnswer(
        text="".join(piece.message.content for piece in found),
        finish_reason=last.done_reason if last.done else _find_cut_reason(found),
        tokens=parse_tokens([entry for piece in found for entry in piece.logprobs or ()]),
        prompt_tokens=last.prompt_eval_count,
        completion_tokens=last.eval_count,
        prompt_ms=_to_milliseconds(last.prompt_eval_duration),
        completion_ms=_to_milliseconds(last.eval_duration),
    )
    return TimedAnswer(answer, last.load_duration / 1e9)


def _find_cut_reason(found: Sequence[Piece]) -> str:
    """Find why the server ended an answer that is not done; it does not report bytes that are not UTF-8."""
    if found[-1].error:
        return REPETITION
    last = [piece.message.content.strip() for piece in found[-REPEATS:]]
    return REPETITION if len(last) == REPEATS and len(set(last)) == 1 else CUT


def _translate_stream_error(message: str) -> ChatFailed:
    """Translate an error at the end of a stream that had begun."""
    if any(sign in message for sign in SIGNS_OF_DEATH):
        return RunnerDied(FailureKind.CONNECTION, message[:500])
    return ChatFailed(FailureKind.BACKEND_ERROR, f"the server ended its stream with {message[:500]!r}")


def _translate_refusal(response: httpx2.Response) -> ChatFailed:
    """Translate a refusal: only a prompt that does not fit is the call's own failure.

    A runner's death counts as a lost connection, since the call may have caused it.
    """
    body = response.text[:500]
    if response.is_server_error and any(sign in body for sign in SIGNS_OF_DEATH):
        return RunnerDied(FailureKind.CONNECTION, body)
    if response.status_code == httpx2.codes.NOT_FOUND:
        return ModelRemoved(FailureKind.CONNECTION, body)
    if response.status_code == httpx2.codes.BAD_REQUEST and any(sign in body for sign in SIGNS_OF_LENGTH):
        return ChatFailed(FailureKind.CONTEXT_EXCEEDED, body)
    detail = f"HTTP {response.status_code}: {body}"
    is_away = response.status_code in AWAY_STATUSES
    return ServerAway(detail) if is_away else ChatFailed(FailureKind.BACKEND_ERROR, detail)


def _to_milliseconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e6
