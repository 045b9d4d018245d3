"""The port of a model that answers one prompt, and what can go wrong with it."""

from typing import Protocol

import msgspec

from shared.contracts.calls import Decoding, FailureKind


class ChatReply(msgspec.Struct, frozen=True, kw_only=True):
    """A model's answer. `finish_reason` "length": the token limit ended it."""

    text: str
    finish_reason: str
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class ChatFailed(Exception):
    """The model gave no answer, and why."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        super().__init__(f"{kind.value}: {detail}")
        self.kind = kind
        self.detail = detail


class ChatModel(Protocol):
    """A model behind whatever protocol."""

    async def complete(self, prompt: str, decoding: Decoding, seed: int) -> ChatReply:
        """Answer one user message.

        Raises:
            ChatFailed: with a typed kind.
        """
        ...

    async def close(self) -> None:
        """Close connections."""
        ...
