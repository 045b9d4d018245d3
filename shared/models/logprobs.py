"""Log-probabilities as model servers give them: OpenAI's form, which llama.cpp, TGI, vLLM and Ollama share."""

import msgspec

from shared.contracts.replies import Token

LEAST = -9999.0
"""OpenAI's word for a token that is next to impossible; JSON has none for the logarithm of 0."""


class _Alternative(msgspec.Struct, frozen=True):
    token: str
    logprob: float


class _Entry(_Alternative, frozen=True):
    top_logprobs: tuple[_Alternative, ...] | None = None


def tokens(content: object) -> tuple[Token, ...]:
    """The tokens of a reply in their order; none where the server gives none, or nothing readable."""
    try:
        entries = msgspec.convert(content or (), tuple[_Entry, ...], from_attributes=True)
    except msgspec.ValidationError:
        return ()
    return tuple(_token(entry) for entry in entries)


def _token(entry: _Entry) -> Token:
    """Of alternatives that read alike, such as parts of one character, the likeliest stands."""
    top: dict[str, float] = {}
    for each in sorted(entry.top_logprobs or (), key=lambda each: -_bounded(each.logprob)):
        top.setdefault(_storable(each.token), _bounded(each.logprob))
    return Token(text=_storable(entry.token), logprob=_bounded(entry.logprob), top=top)


def _bounded(logprob: float) -> float:
    """In [LEAST, 0]; what is no number is LEAST."""
    return min(logprob, 0.0) if logprob > LEAST else LEAST


def _storable(text: str) -> str:
    """Without what PostgreSQL or UTF-8 cannot hold."""
    return text.replace("\0", "�").encode(errors="replace").decode()
