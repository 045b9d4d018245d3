"""Arguments of each tool: the schema that clients see, and the struct that the arguments are parsed into.

Names, types, values and defaults of `enhanced-search` and `enhanced-chat` are those of the source document, plus
`corpus`. Where the document gives no default, its configuration does: `hybrid`, with CRAG.
"""

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from mathrag.client.errors import Failed

Schema = dict[str, Any]
A = TypeVar("A", bound="Arguments")

CORPUS: Schema = {"type": "string", "description": "Corpus to search; required only if there are several."}


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

    name: Annotated[str, Meta(description="Name of the new job.")]
    dataset: Annotated[str, Meta(description="Dataset to run on.")]
    pipeline: Annotated[str, Meta(description="Pipeline that answers, such as hybrid or mathrag-gate.")]
    corpus: Annotated[str | None, Meta(description=CORPUS["description"])] = None
    limit: Annotated[int | None, Meta(description="Number of questions, from the first; all by default.")] = None
    repeats: Annotated[int, Meta(description="How often each question is asked.")] = 1
    params: Annotated[dict[str, Any], Meta(description='Parameters, nested, such as {"gate": {"tau": 0.3}}.')] = {}
    models: Annotated[dict[str, str], Meta(description='Model names by role, such as {"judge": "world-judge"}.')] = {}


class JobArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `job-status` and `job-report`."""

    job: Annotated[str, Meta(description="Name, id, or the first characters of the id (four or more).")]


def make_schema(kind: type[Arguments]) -> Schema:
    """Return the schema of these arguments as clients see it: null and empty defaults are left out."""
    found = msgspec.json.schema_components([kind])[1][kind.__name__]
    properties = {
        name: {
            "type": each.get("anyOf", [each])[0]["type"],
            **{key: each[key] for key in ("default", "description") if each.get(key)},
        }
        for name, each in found["properties"].items()
    }
    return {"type": "object", "properties": properties, "required": found["required"]}


# These two are as the source document prints them.
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
