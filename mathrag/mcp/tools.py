"""The tools: each sends one or two requests to the API, with the command line's client and key."""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from mathrag.client import jobs
from mathrag.client import texts as texts_module
from mathrag.client.async_client import AsyncClient
from mathrag.client.errors import Failed
from mathrag.client.request import Json
from mathrag.mcp import arguments
from mathrag.mcp.arguments import Schema, make_schema, read

MODES = {"semantic": "dense", "hybrid": "hybrid", "bm25": "sparse"}
"""The API's search mode for each strategy."""
PIPELINE = "enhanced"
WAIT_S = 55
"""Longest wait for a chat in seconds; a longer one is returned as a job, because clients stop after about a minute."""


class Server(NamedTuple):
    """The client that the tools use, and the default corpus."""

    client: AsyncClient
    corpus: str | None = None

    async def corpus_for(self, named: str | None) -> str:
        """Return the named corpus, else the default, else the only one that exists.

        Raises:
            Failed: no corpus is named, and there are several or none.
        """
        return (
            named
            or self.corpus
            or texts_module.only(await self.client.send(texts_module.list_texts("corpora", limit=5)))
        )


class Tool(NamedTuple):
    """A tool of the server."""

    name: str
    description: str
    schema: Schema
    run: Callable[[Server, Json], Awaitable[Any]]
    changes: bool
    """Whether a call stores anything."""


async def enhanced_search(server: Server, given: Json) -> Any:
    """Send `POST /v1/search` with query enhancement and reranking, which need no model on a device."""
    search = read(given, arguments.SearchArguments)
    body = {
        "question": search.query, "corpus": await server.corpus_for(search.corpus), "mode": MODES[search.strategy],
        "k": search.top_k, "enhance": True, "rerank": True, "crag": search.enable_crag,
    }  # fmt: skip
    return await server.client.send(texts_module.search(body))


async def enhanced_chat(server: Server, given: Json) -> Any:
    """Send `POST /v1/chat` with the pipeline `enhanced`."""
    chat = read(given, arguments.ChatArguments)
    if "context_length" in given and not chat.enable_compression:
        problem = "`context_length`: is not read while `enable_compression` is false, so it would change nothing"
        raise Failed("invalid", problem, hint="leave it out, or change `enable_compression`")
    tokens = {"tokens": chat.context_length} if chat.enable_compression else {}
    body = {
        "question": chat.query, "corpus": await server.corpus_for(chat.corpus), "pipeline": PIPELINE,
        "params": {"compress": {"enabled": chat.enable_compression, **tokens}}, "wait_s": WAIT_S,
    }  # fmt: skip
    return await server.client.send(texts_module.chat(body))


async def job_submit(server: Server, given: Json) -> Any:
    """Send `POST /v1/jobs` with an idempotency key, so that a retry on the way does not make a second job."""
    request = read(given, arguments.SubmitArguments)
    body = {name: getattr(request, name) for name in request.__struct_fields__}
    body["corpus"] = request.corpus or server.corpus
    return await server.client.send(jobs.submit(body, str(uuid.uuid4())))


async def job_status(server: Server, given: Json) -> Any:
    """Send `GET /v1/jobs/{job}`."""
    return await server.client.send(jobs.get(read(given, arguments.JobArguments).job))


async def job_report(server: Server, given: Json) -> Any:
    """Send `GET /v1/jobs/{job}/report`."""
    return await server.client.send(jobs.report(read(given, arguments.JobArguments).job))


TOOLS = (
    Tool(
        "enhanced-search", "Enhanced semantic search with query optimization and hybrid retrieval",
        arguments.SEARCH, enhanced_search, changes=False,
    ),
    Tool(
        "enhanced-chat", "Enhanced RAG chat with query optimization and result refinement",
        arguments.CHAT, enhanced_chat, changes=True,
    ),
    Tool(
        "job-submit", "Answer every question of a dataset by a pipeline. Returns at once; follow it with job-status.",
        make_schema(arguments.SubmitArguments), job_submit, changes=True,
    ),
    Tool(
        "job-status", "Show state, counts and estimated time of a job or of a chat.",
        make_schema(arguments.JobArguments), job_status, changes=False,
    ),
    Tool(
        "job-report", "Show a job's accuracy with its interval, its failures and its cost.",
        make_schema(arguments.JobArguments), job_report, changes=False,
    ),
)  # fmt: skip
BY_NAME = {tool.name: tool for tool in TOOLS}
