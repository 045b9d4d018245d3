"""Serves the API to assistants over the Model Context Protocol."""

import uuid
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import msgspec
from mcp.server.lowlevel import Server as Protocol
from mcp.server.stdio import stdio_server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
from msgspec import Meta

from mathrag.client import jobs, texts
from mathrag.client.async_client import AsyncClient
from mathrag.client.errors import Failed, failure
from mathrag.client.request import Json

# Arguments of each tool: the schema that clients see, and the struct for parsing.
#
# `enhanced-search` and `enhanced-chat` have the names, types, values and defaults of the source document, plus
# `corpus`. If the document gives no default, its configuration does: `hybrid`, with CRAG.

Schema = dict[str, Any]
A = TypeVar("A", bound="Arguments")

CORPUS: Schema = {"type": "string", "description": "Corpus to search; required only if there are several."}


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base class of the arguments of a tool; unknown fields are rejected."""


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
    dataset: Annotated[str, Meta(description="Dataset with the questions.")]
    pipeline: Annotated[str, Meta(description="Pipeline that answers, such as hybrid or mathrag-gate.")]
    corpus: Annotated[str | None, Meta(description=CORPUS["description"])] = None
    limit: Annotated[int | None, Meta(description="Number of questions, counted from the first; all by default.")] = (
        None
    )
    repeats: Annotated[int, Meta(description="Number of times that each question is asked.")] = 1
    params: Annotated[
        dict[str, Any],
        Meta(description='Parameters, nested, such as {"gate": {"tau": 0.3}, "metrics": {"names": ["faithfulness"]}}.'),
    ] = {}
    models: Annotated[dict[str, str], Meta(description='Model names by role, such as {"judge": "world-judge"}.')] = {}


class CorpusArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `corpus-create`."""

    name: Annotated[str, Meta(description="Name of the new corpus.")]
    documents: Annotated[
        dict[str, str],
        Meta(
            description="Texts by id, such as a file name; 1 to 1,000 texts of at most 1 MiB together.",
            min_length=1,
            max_length=1000,
        ),
    ]


class JobArguments(Arguments, frozen=True, kw_only=True):
    """Arguments of `job-status` and `job-report`."""

    job: Annotated[str, Meta(description="Job: name, id, or the first characters of the id (four or more).")]


def make_schema(kind: type[Arguments]) -> Schema:
    """Return the schema of these arguments for clients, without null and empty defaults."""
    found = msgspec.json.schema_components([kind])[1][kind.__name__]
    properties = {
        name: {
            "type": each.get("anyOf", [each])[0]["type"],
            **{key: each[key] for key in ("default", "description") if each.get(key)},
        }
        for name, each in found["properties"].items()
    }
    return {"type": "object", "properties": properties, "required": found["required"]}


# These two schemas are copied from the source document.
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
        Failed: an argument is missing, unknown or of a wrong type; the message names it.
    """
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        hint = f"use the arguments {', '.join(kind.__struct_fields__)}"
        raise Failed("invalid", str(error).replace("`$.", "`"), hint=hint) from error


# The tools: each sends one or two requests to the API with the command line's client and key.

MODES = {"semantic": "dense", "hybrid": "hybrid", "bm25": "sparse"}
"""The API's search mode for each strategy."""
PIPELINE = "enhanced"
UPLOAD_BYTES = 1 << 20
"""Largest upload of one call in bytes. With the shipped embeddings, both indexes of 1 MiB are built before clients
stop waiting; with slower embeddings, a second identical call finds the corpus."""
WAIT_S = 55
"""Longest wait for a chat in seconds; a longer chat is returned as a job, because clients stop after a minute."""


class Server(NamedTuple):
    """The client that the tools use, and the default corpus."""

    client: AsyncClient
    corpus: str | None = None

    async def corpus_for(self, named: str | None) -> str:
        """Return the named corpus, or the default corpus, or the only one that exists.

        Raises:
            Failed: no corpus is named, and there are several or none.
        """
        return (
            named
            or self.corpus
            or texts.require_only_corpus(await self.client.send(texts.list_corpora().with_limit(5)))
        )


class ServedTool(NamedTuple):
    """A tool of the server."""

    name: str
    description: str
    schema: Schema
    run: Callable[[Server, Json], Awaitable[Any]]
    changes: bool
    """A call stores something on the server."""


async def enhanced_search(server: Server, given: Json) -> Any:
    """Send `POST /v1/search` with query enhancement and reranking, which need no model on a device."""
    search = read(given, SearchArguments)
    body = {
        "question": search.query, "corpus": await server.corpus_for(search.corpus), "mode": MODES[search.strategy],
        "k": search.top_k, "enhance": True, "rerank": True, "crag": search.enable_crag,
    }  # fmt: skip
    return await server.client.send(texts.search(body))


async def enhanced_chat(server: Server, given: Json) -> Any:
    """Send `POST /v1/chat` with the pipeline `enhanced`."""
    chat = read(given, ChatArguments)
    if "context_length" in given and not chat.enable_compression:
        problem = "`context_length`: has no effect while `enable_compression` is false"
        raise Failed("invalid", problem, hint="remove `context_length`, or set `enable_compression` to true")
    tokens = {"tokens": chat.context_length} if chat.enable_compression else {}
    body = {
        "question": chat.query, "corpus": await server.corpus_for(chat.corpus), "pipeline": PIPELINE,
        "params": {"compress": {"enabled": chat.enable_compression, **tokens}}, "wait_s": WAIT_S,
    }  # fmt: skip
    return await server.client.send(texts.chat(body))


async def corpus_create(server: Server, given: Json) -> Any:
    """Send `POST /v1/corpora` with one line per document; the service checks the lines like those of a file.

    Raises:
        Failed: the documents together are too large.
    """
    upload = read(given, CorpusArguments)
    lines = [msgspec.json.encode({"id": id, "text": text}) + b"\n" for id, text in upload.documents.items()]  # noqa: A001
    if (size := sum(map(len, lines))) > UPLOAD_BYTES:
        problem = f"`documents` has {size:,} bytes, more than the {UPLOAD_BYTES:,} of one call"
        raise Failed("too_large", problem, hint="upload files: mathrag corpus create NAME --from PATH")
    return await server.client.send(texts.upload("corpora", lines, upload.name))


async def job_submit(server: Server, given: Json) -> Any:
    """Send `POST /v1/jobs` with an idempotency key, so that a retry does not create a second job."""
    request = read(given, SubmitArguments)
    body = {name: getattr(request, name) for name in request.__struct_fields__}
    body["corpus"] = request.corpus or server.corpus
    return await server.client.send(jobs.submit(body, str(uuid.uuid4())))


async def job_status(server: Server, given: Json) -> Any:
    """Send `GET /v1/jobs/{job}`."""
    return await server.client.send(jobs.get(read(given, JobArguments).job))


async def job_report(server: Server, given: Json) -> Any:
    """Send `GET /v1/jobs/{job}/report`."""
    return await server.client.send(jobs.report(read(given, JobArguments).job))


TOOLS = (
    ServedTool(
        "enhanced-search", "Enhanced semantic search with query optimization and hybrid retrieval",
        SEARCH, enhanced_search, changes=False,
    ),
    ServedTool(
        "enhanced-chat", "Enhanced RAG chat with query optimization and result refinement",
        CHAT, enhanced_chat, changes=True,
    ),
    ServedTool(
        "corpus-create", "Store texts as a new corpus, and index it. Its documents cannot be changed later.",
        make_schema(CorpusArguments), corpus_create, changes=True,
    ),
    ServedTool(
        "job-submit", "Let a pipeline answer every question of a dataset. Returns at once; follow it with job-status.",
        make_schema(SubmitArguments), job_submit, changes=True,
    ),
    ServedTool(
        "job-status", "Show the state, counts and estimated time of a job or chat.",
        make_schema(JobArguments), job_status, changes=False,
    ),
    ServedTool(
        "job-report", "Show a job's accuracy with its confidence interval, its failures and its cost.",
        make_schema(JobArguments), job_report, changes=False,
    ),
)  # fmt: skip
BY_NAME = {tool.name: tool for tool in TOOLS}

# The MCP server lists and calls tools over standard input and output; nothing else may be written there.

INSTRUCTIONS = "Search a corpus of mathematics, ask questions about it, and run jobs over datasets of questions."


def build_protocol(server: Server) -> Protocol[Any]:
    """Build the MCP server that lists the tools and calls them."""

    async def list_tools(_context: Any, _params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(
            tools=[
                Tool(
                    name=tool.name, description=tool.description, input_schema=tool.schema,
                    annotations=ToolAnnotations(
                        read_only_hint=not tool.changes, destructive_hint=False, open_world_hint=False
                    ),
                )
                for tool in TOOLS
            ]
        )  # fmt: skip

    async def call_tool(_context: Any, params: CallToolRequestParams) -> CallToolResult:
        tool = BY_NAME.get(params.name)
        if tool is None:
            message = f"unknown tool {params.name!r}; the tools are {', '.join(BY_NAME)}"
            raise MCPError(INVALID_PARAMS, message)
        try:
            value = await tool.run(server, params.arguments or {})
        except Exception as error:  # noqa: BLE001 - a defect must also reach the model as a message
            failed = failure(error)
            words = failed.message + (f"\nfix: {failed.hint}" if failed.hint else "")
            return CallToolResult(content=[TextContent(text=words)], is_error=True)
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
        return CallToolResult(content=[TextContent(text=text)], structured_content=value)

    return Protocol(
        "mathrag", version=version("mathrag"), instructions=INSTRUCTIONS, on_list_tools=list_tools,
        on_call_tool=call_tool,
    )  # fmt: skip


async def serve(corpus: str | None, patience_s: float) -> None:
    """Serve one client until it closes standard input; `corpus` is the default corpus."""
    async with AsyncClient(timeout_s=patience_s) as client, stdio_server() as (reading, writing):
        speaking = build_protocol(Server(client, corpus))
        await speaking.run(reading, writing, speaking.create_initialization_options())
