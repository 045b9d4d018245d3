"""Arguments of each tool: the schema that clients see, and the struct that the arguments are parsed into.

Names, types, values and defaults of `enhanced-search` and `enhanced-chat` are those of the source document, plus
`corpus`. Where the document gives no default, its configuration does: `hybrid`, with CRAG.
"""

from typing import Any, Literal, TypeVar

import msgspec

from mathrag.client.errors import Failed

Schema = dict[str, Any]
A = TypeVar("A", bound="Arguments")

CORPUS: Schema = {"type": "string", "description": "Corpus to search; required only if there are several."}
JOB: Schema = {"type": "string", "description": "Name, id, or the first characters of the id (four or more)."}


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the arguments of a tool; unknown fields are refused."""


class SearchArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `enhanced-search`."""

    query: str
    strategy: Literal["semantic", "hybrid", "bm25"] = "hybrid"
    enable_crag: bool = True
    top_k: int = 10
    corpus: str | None = None


class ChatArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `enhanced-chat`."""

    query: str
    context_length: int = 4000
    enable_compression: bool = True
    corpus: str | None = None


class SubmitArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `job-submit`."""

    name: str
    dataset: str
    pipeline: str
    corpus: str | None = None
    limit: int | None = None
    repeats: int = 1
    params: dict[str, Any] = {}
    models: dict[str, str] = {}


class JobArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `job-status` and `job-report`."""

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
        "name": {"type": "string", "description": "Name of the new job."},
        "dataset": {"type": "string", "description": "Dataset to run on."},
        "pipeline": {"type": "string", "description": "Pipeline that answers, such as hybrid or mathrag-gate."},
        "corpus": CORPUS,
        "limit": {"type": "integer", "description": "Number of questions, from the first; all by default."},
        "repeats": {"type": "integer", "default": 1, "description": "How often each question is asked."},
        "params": {"type": "object", "description": 'Parameters, nested, such as {"gate": {"tau": 0.3}}.'},
        "models": {"type": "object", "description": 'Model names by role, such as {"judge": "world-judge"}.'},
    },
    "required": ["name", "dataset", "pipeline"],
}
ONE_JOB: Schema = {"type": "object", "properties": {"job": JOB}, "required": ["job"]}


def read(given: dict[str, Any], kind: type[A]) -> A:
    """Parse `given` as the arguments of a tool.

    Raises:
        Failed: one is missing, unknown or of another type; the message names it.
    """
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise Failed(
            "invalid", str(error).replace("`$.", "`"), hint=f"the arguments are {', '.join(kind.__struct_fields__)}"
        ) from error
