"""Read conversations to learn from: JSON lines `{"messages": [{"role": "user", ...}, {"role": "assistant", ...}]}`."""

import json
from dataclasses import dataclass
from pathlib import Path

MOST_LINES = 1_000_000


class MessagesError(ValueError):
    """Raised when a line is not a conversation; the message names file, line and fix."""


@dataclass(frozen=True)
class Exchange:
    """A prompt and the reply to learn."""

    prompt: str
    reply: str


def read_messages(file: Path) -> list[Exchange]:
    """Read all exchanges of a file in order; empty lines are skipped.

    Raises:
        MessagesError: for a line that is not one user message and one assistant message, or a file without any.
    """
    exchanges = []
    with file.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if number > MOST_LINES:
                raise MessagesError(f"{file} has more than {MOST_LINES} lines: split it")
            if line.strip():
                exchanges.append(_exchange(f"{file}, line {number}", line))
    if not exchanges:
        raise MessagesError(f"{file} has no messages: write them with `mathrag dataset training-data`")
    return exchanges


def _exchange(place: str, line: str) -> Exchange:
    try:
        messages = json.loads(line)["messages"]
        roles = [message["role"] for message in messages]
        texts = [message["content"] for message in messages]
    except (ValueError, KeyError, TypeError):
        raise MessagesError(f'{place}: expected {{"messages": [{{"role": ..., "content": ...}}, ...]}}') from None
    if roles != ["user", "assistant"] or not all(isinstance(text, str) and text for text in texts):
        raise MessagesError(
            f"{place}: expected one message of `user`, then one of `assistant`, both with text: {roles}"
        )
    return Exchange(*texts)
