"""The prompt of a model: a text, or the messages of a conversation."""

from typing import Literal

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


Prompt = str | tuple[Message, ...]
"""A text is equivalent to a single message of the user."""


def messages_of(prompt: Prompt) -> list[dict[str, str]]:
    """Convert the prompt to messages, as model servers take it."""
    if isinstance(prompt, str):
        return [{"role": "user", "content": prompt}]
    return [{"role": each.role, "content": each.content} for each in prompt]


def text_of(prompt: Prompt) -> str:
    """Format the prompt as text: each message of a conversation under its role."""
    return prompt if isinstance(prompt, str) else "\n\n".join(f"[{each.role}]\n{each.content}" for each in prompt)
