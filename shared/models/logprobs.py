"""Parse log-probabilities in OpenAI's form, which llama.cpp, TGI, vLLM and Ollama share."""

import msgspec

from shared.contracts.replies import Token

MIN_LOGPROB = -9999.0
"""OpenAI's value for a practically impossible token, since JSON cannot hold the logarithm of 0."""


class _Alternative(msgspec.Struct, frozen=True):
    token: str
    logprob: float


class _Entry(_Alternative, frozen=True):
    top_logprobs: tuple[_Alternative, ...] | None = None


def parse_tokens(content: object) -> tuple[Token, ...]:
    """Parse the tokens of a reply, in order; empty if the server gives none or they are malformed."""
    try:
        entries = msgspec.convert(content or (), tuple[_Entry, ...], from_attributes=True)
    except msgspec.ValidationError:
        return ()
    return tuple(_make_token(entry) for entry in entries)


def _make_token(entry: _Entry) -> Token:
    """Convert an entry; of alternatives with the same text, such as parts of one character, keep the likeliest."""
    top: dict[str, float] = {}
    for each in sorted(entry.top_logprobs or (), key=lambda each: -_bound(each.logprob)):
        top.setdefault(_make_storable(each.token), _bound(each.logprob))
    return Token(text=_make_storable(entry.token), logprob=_bound(entry.logprob), top=top)


def _bound(logprob: float) -> float:
    """Clamp to [MIN_LOGPROB, 0]; NaN becomes MIN_LOGPROB."""
    return min(logprob, 0.0) if logprob > MIN_LOGPROB else MIN_LOGPROB


def _make_storable(text: str) -> str:
    """Replace characters that PostgreSQL or UTF-8 cannot hold."""
    return text.replace("\0", "�").encode(errors="replace").decode()
