"""What each tool takes: the schema that clients are shown, and what its arguments are read into.

Names, types, values and defaults of `enhanced-search` and `enhanced-chat` are those of the source document; `corpus` is
ours. What the document leaves open is `hybrid`, with CRAG, as its configuration has it.
"""

from typing import Any, Literal, TypeVar

import msgspec

from mathrag.client.errors import Failed

Schema = dict[str, Any]
A = TypeVar("A", bound="Arguments")

CORPUS: Schema = {"type": "string", "description": "What is searched; needed only where there are several."}
JOB: Schema = {"type": "string", "description": "Its id, the first characters of it, or its name."}


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of some tool."""


class Search(Arguments, frozen=True, kw_only=True):
    """`enhanced-search`."""

    query: str
    strategy: Literal["semantic", "hybrid", "bm25"] = "hybrid"
    enable_crag: bool = True
    top_k: int = 10
    corpus: str | None = None


class Chat(Arguments, frozen=True, kw_only=True):
    """`enhanced-chat`."""

    query: str
    context_length: int = 4000
    enable_compression: bool = True
    corpus: str | None = None


class Submit(Arguments, frozen=True, kw_only=True):
    """`job-submit`."""

    name: str
    dataset: str
    pipeline: str
    corpus: str | None = None
    limit: int | None = None
    repeats: int = 1
    params: dict[str, Any] = {}
    models: dict[str, str] = {}


class Job(Arguments, frozen=True, kw_only=True):
    """`job-status` and `job-report`."""

    job: str


SEARCH: Schema = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "strategy": {"type": "string", "enum": ["semantic", "hybrid", "bm25"]},
        "enable_crag": {"type": "boolean"},
        "top_k": {"type": "integer", "default": 10},
        "corpus": CORPUS,
    },
}
CHAT: Schema = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "context_length": {"type": "integer", "default": 4000},
        "enable_compression": {"type": "boolean", "default": True},
        "corpus": CORPUS,
    },
}
SUBMIT: Schema = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "What you call it."},
        "dataset": {"type": "string", "description": "What is asked."},
        "pipeline": {"type": "string", "description": "How it is answered, such as hybrid or mathrag-gate."},
        "corpus": CORPUS,
        "limit": {"type": "integer", "description": "Only the first so many questions of the dataset."},
        "repeats": {"type": "integer", "default": 1, "description": "How often each question is asked."},
        "params": {"type": "object", "description": 'Parameters, nested, such as {"gate": {"tau": 0.3}}.'},
        "models": {"type": "object", "description": 'Model names by role, such as {"judge": "world-judge"}.'},
    },
    "required": ["name", "dataset", "pipeline"],
}
ONE_JOB: Schema = {"type": "object", "properties": {"job": JOB}, "required": ["job"]}


def read(given: dict[str, Any], kind: type[A]) -> A:
    """`given` as the arguments of a tool.

    Raises:
        Failed: one is missing, unknown or of another type; the message names it.
    """
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise Failed(
            "invalid", str(error).replace("`$.", "`"), hint=f"arguments: {', '.join(kind.__struct_fields__)}"
        ) from error
