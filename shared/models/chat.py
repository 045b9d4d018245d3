"""Chat models behind OpenAI's protocol: sampling, constraints, streams and log probabilities."""

import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import httpx2
import msgspec

from mathrag.messages import redact
from shared.replies import FailureKind, Token

LENGTH = "length"
"""The answer reached the token limit or the end of the context."""
REPETITION = "repetition"
"""The server stopped a text that repeated itself."""
BROKEN_BYTE = "broken_byte"
"""The model wrote a byte that is not valid UTF-8, and the server stopped there."""
CUT = "cut"
"""The server ended the text without a reason."""
CUT_REASONS = frozenset({LENGTH, REPETITION, BROKEN_BYTE, CUT, "content_filter"})
"""Finish reasons of a text that the model did not end itself."""
AWAY_STATUSES = (429, 502, 503, 504)
"""Statuses with which a server, or a proxy before it, refuses all calls for now."""


class ChatFailed(Exception):
    """The model gave no answer; `detail` says why, without secrets, since it becomes part of the provenance."""

    def __init__(self, kind: FailureKind, detail: str) -> None:
        self.kind = kind
        self.detail = redact(detail)
        super().__init__(f"{kind.value}: {self.detail}")


class PromptCut(ChatFailed):
    """The server answered a truncated prompt."""


class ServerAway(ChatFailed):
    """The server refuses all calls now, since it restarts, loads or is overloaded; the call itself has not failed."""

    def __init__(self, detail: str, kind: FailureKind = FailureKind.UNAVAILABLE) -> None:
        super().__init__(kind, detail)


class ServerUnreached(ServerAway):
    """No connection was made, so the server has not seen the call, which cannot have harmed it."""

    def __init__(self, detail: str) -> None:
        super().__init__(detail, FailureKind.CONNECTION)


# Sampling settings for every model server, besides temperature, length and seed, that leave a model's distribution
# unchanged.
#
# A setting that is not sent takes the server's default, which differs between servers and versions: top-k 40, top-p
# 0.95 and min-p 0.05 in llama.cpp, a repeat penalty of 1.1 in Ollama before 0.32.10. So every setting that a server
# knows is sent with its neutral value. The settings are part of a model's identity.

Sampling = Mapping[str, float]
OPENAI: Sampling = MappingProxyType({"top_p": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0})
"""Settings of OpenAI's protocol; servers that implement only this refuse others."""
LLAMA: Sampling = MappingProxyType(
    {
        **OPENAI, "top_k": 0, "min_p": 0.0, "typical_p": 1.0, "top_n_sigma": -1.0, "repeat_penalty": 1.0,
        "dynatemp_range": 0.0, "xtc_probability": 0.0, "dry_multiplier": 0.0, "mirostat": 0, "adaptive_target": -1.0,
    }
)  # fmt: skip
"""Settings of llama.cpp's server, named as in `/props` (b10434); versions that do not know one ignore it."""
VLLM: Sampling = MappingProxyType({**OPENAI, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0})
"""vLLM's settings; a top-k of -1 means all tokens in every version, 0 only in newer ones (vllm/sampling_params.py)."""
SGLANG = VLLM
"""SGLang has the same fields; those that are not sent take the values of the model's `generation_config.json`, where a
repetition penalty changes greedy answers as well (srt/entrypoints/openai/protocol.py, `to_sampling_params`)."""
TGI: Sampling = MappingProxyType({"frequency_penalty": 0.0})
"""text-generation-inference refuses a top-p of 1, turns a presence penalty of 0 into a repetition penalty of 2, and
has no other field for chats (router/src/lib.rs, router/src/validation.rs); settings that are not sent are off."""
OLLAMA: Sampling = MappingProxyType(
    {**OPENAI, "top_k": 0, "min_p": 0.0, "typical_p": 1.0, "repeat_penalty": 1.0, "repeat_last_n": 64}
)
"""Ollama's options (api/types.go); it warns of unknown ones."""
BY_BACKEND: Mapping[str, Sampling] = MappingProxyType(
    {"llama.cpp": LLAMA, "vllm": VLLM, "sglang": SGLANG, "tgi": TGI, "openai": OPENAI}
)
"""Settings by the name of the backend in a model's row."""

# Constrain a reply to one of several texts. Each server has its own field for that, and servers ignore unknown fields,
# so a model that is to be constrained is refused where the server is not known to have its field.

STRUCTURED_OUTPUTS = (0, 11)
"""First vLLM that knows `structured_outputs`; older ones ignore it."""


def constrain_reply(backend: str, choices: Sequence[str]) -> dict[str, Any]:
    """Return the fields of a request that restrict the reply to one of `choices`; empty without choices.

    Ollama's replies are JSON strings, in quotation marks.

    Raises:
        ValueError: this backend cannot constrain replies.
    """
    if not choices:
        return {}
    pattern = "|".join(map(re.escape, choices))
    match backend:
        case "llama.cpp":
            return {"grammar": f"root ::= {' | '.join(map(json.dumps, choices))}"}
        case "vllm":
            return {"structured_outputs": {"choice": list(choices)}}
        case "sglang":
            return {"regex": f"({pattern})"}
        case "tgi":
            return {"response_format": {"type": "regex", "value": f"({pattern})"}}
        case "ollama":
            return {"format": {"type": "string", "enum": list(choices)}}
    raise ValueError("`constrain_labels` needs llama.cpp, vLLM, SGLang, text-generation-inference or Ollama: remove it")


def label_options(*, constrained: bool, backend: str, version: str) -> dict[str, bool]:
    """Return the options of a model's row for `constrain_labels`; none if it is off, so that older rows stay the same.

    Raises:
        ValueError: the server cannot constrain replies; the message has the fix.
    """
    if not constrained:
        return {}
    constrain_reply(backend, ("any",))
    if backend == "vllm" and tuple(map(int, re.findall(r"\d+", version)[:2])) < STRUCTURED_OUTPUTS:
        least = ".".join(map(str, STRUCTURED_OUTPUTS))
        raise ValueError(f"`constrain_labels` needs vLLM {least} or later, not {version or 'an unknown version'}")
    return {"constrain_labels": True}


# Parse log-probabilities in OpenAI's form, which llama.cpp, TGI, vLLM and Ollama share.

GIVING: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"llama.cpp": (), "vllm": (), "sglang": (), "tgi": (), "ollama": (0, 12, 11)}
)
"""The first version of each backend that gives log-probabilities; (): all do."""


def gives_logprobs(backend: str, version: str) -> bool:
    """Tell whether this server is known to give log-probabilities."""
    numbers = tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())
    return backend in GIVING and numbers >= GIVING[backend]


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
    tokens = []
    for entry in entries:
        top: dict[str, float] = {}
        # Of alternatives with the same text, such as parts of one character, the likeliest is kept.
        for each in sorted(entry.top_logprobs or (), key=lambda each: -_bound(each.logprob)):
            top.setdefault(_make_storable(each.token), _bound(each.logprob))
        tokens.append(Token(text=_make_storable(entry.token), logprob=_bound(entry.logprob), top=top))
    return tuple(tokens)


def _bound(logprob: float) -> float:
    """Clamp to [MIN_LOGPROB, 0]; NaN becomes MIN_LOGPROB."""
    return min(logprob, 0.0) if logprob > MIN_LOGPROB else MIN_LOGPROB


def _make_storable(text: str) -> str:
    """Replace characters that PostgreSQL or UTF-8 cannot hold."""
    return text.replace("\0", "�").encode(errors="replace").decode()


# Read the lines of an answer that a server sends piece by piece: server-sent events, or one JSON document a line.

BOM = "\ufeff"


async def read_lines(response: httpx2.Response) -> AsyncIterator[str]:
    """Yield the lines that are not blank, without blanks around them.

    LF, CR or both end a line (WHATWG HTML, 9.2.6). The HTTP library's own lines also end at U+0085, U+2028 and U+2029,
    which JSON may hold. Bytes that are not UTF-8 are replaced.
    """
    parts: list[bytes] = []
    async for piece in response.aiter_bytes():
        first, *others = piece.replace(b"\r", b"\n").split(b"\n")
        parts.append(first)
        for other in others:
            if line := _decode(parts):
                yield line
            parts = [other]
    if line := _decode(parts):
        yield line


def _decode(parts: list[bytes]) -> str:
    return b"".join(parts).decode(errors="replace").removeprefix(BOM).strip(" \t\n")
