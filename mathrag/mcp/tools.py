"""The tools: each is one request of the API, or two, sent by the command line's own client with its key."""

import uuid
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from mathrag.client import jobs, questions, texts
from mathrag.client.async_client import AsyncClient
from mathrag.client.request import Json
from mathrag.mcp import arguments
from mathrag.mcp.arguments import Schema, read

MODES = {"semantic": "dense", "hybrid": "hybrid", "bm25": "sparse"}
"""The API's word for each strategy."""
PIPELINE = "enhanced"
WAIT_S = 55
"""A chat that takes longer goes on, and is told as a job: clients give a tool about a minute."""


class Server(NamedTuple):
    """Whom the tools ask, and about what where nobody says."""

    client: AsyncClient
    corpus: str | None = None

    async def corpus_for(self, named: str | None) -> str:
        """The corpus that is named, else the server's own, else the only one that there is.

        Raises:
            Failed: there are several, or none.
        """
        return named or self.corpus or texts.only(await self.client.send(texts.listed("corpora", limit=5)))


class Tool(NamedTuple):
    """One of them."""

    name: str
    description: str
    schema: Schema
    run: Callable[[Server, Json], Awaitable[Any]]
    changes: bool
    """Whether anything is stored by it."""


async def enhanced_search(server: Server, given: Json) -> Any:
    """`POST /v1/search`, with everything that needs no model of the device."""
    asked = read(given, arguments.Search)
    body = {
        "question": asked.query, "corpus": await server.corpus_for(asked.corpus), "mode": MODES[asked.strategy],
        "k": asked.top_k, "enhance": True, "rerank": True, "crag": asked.enable_crag,
    }  # fmt: skip
    return await server.client.send(questions.search(body))


async def enhanced_chat(server: Server, given: Json) -> Any:
    """`POST /v1/chat` by the pipeline `enhanced`."""
    asked = read(given, arguments.Chat)
    compress = {"enabled": asked.enable_compression, "tokens": asked.context_length}
    body = {
        "question": asked.query, "corpus": await server.corpus_for(asked.corpus), "pipeline": PIPELINE,
        "params": {"compress": compress}, "wait_s": WAIT_S,
    }  # fmt: skip
    return await server.client.send(questions.chat(body))


async def job_submit(server: Server, given: Json) -> Any:
    """`POST /v1/jobs`; sent again by whatever stands in between, it is still one job."""
    asked = read(given, arguments.Submit)
    body = {name: getattr(asked, name) for name in asked.__struct_fields__}
    body["corpus"] = asked.corpus or server.corpus
    return await server.client.send(jobs.submit(body, str(uuid.uuid4())))


async def job_status(server: Server, given: Json) -> Any:
    """`GET /v1/jobs/{job}`."""
    return await server.client.send(jobs.get(read(given, arguments.Job).job))


async def job_report(server: Server, given: Json) -> Any:
    """`GET /v1/jobs/{job}/report`."""
    return await server.client.send(jobs.report(read(given, arguments.Job).job))


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
        "job-submit", "Answer every question of a dataset by a pipeline. Returns at once; ask job-status with its id.",
        arguments.SUBMIT, job_submit, changes=True,
    ),
    Tool(
        "job-status", "State, counts and estimate of a job or of a chat.",
        arguments.ONE_JOB, job_status, changes=False,
    ),
    Tool(
        "job-report", "Accuracy with its interval, failures and cost of a job.",
        arguments.ONE_JOB, job_report, changes=False,
    ),
)  # fmt: skip
BY_NAME = {tool.name: tool for tool in TOOLS}
