"""The tools: each is one request of the API, or two, sent by the command line's own client with its key."""

import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from mathrag.cli.failures import Failed
from mathrag.client.client import Client, segment
from mathrag.mcp import arguments
from mathrag.mcp.arguments import Schema, read

MODES = {"semantic": "dense", "hybrid": "hybrid", "bm25": "sparse"}
"""The API's word for each strategy."""
PIPELINE = "enhanced"
WAIT_S = 55
"""A chat that takes longer goes on, and is told as a job: clients give a tool about a minute."""


class Server(NamedTuple):
    """Whom the tools ask, and about what where nobody says."""

    client: Client
    corpus: str | None = None

    def corpus_for(self, named: str | None) -> str:
        """The corpus that is named, else the server's own, else the only one that there is.

        Raises:
            Failed: there are several, or none.
        """
        if found := named or self.corpus:
            return found
        there = [each["name"] for each in self.client.get("/v1/corpora", limit=5)["data"]]
        if len(there) == 1:
            return str(there[0])
        if there:
            raise Failed(
                "invalid", f"`corpus`: name one of {', '.join(there)}", hint="or start mathrag mcp --corpus NAME"
            )
        raise Failed("not_found", "there is no corpus", hint="mathrag corpus create")


class Tool(NamedTuple):
    """One of them."""

    name: str
    description: str
    schema: Schema
    run: Callable[[Server, dict[str, Any]], Any]
    changes: bool
    """Whether anything is stored by it."""


def enhanced_search(server: Server, given: dict[str, Any]) -> Any:
    """`POST /v1/search`, with everything that needs no model of the device."""
    asked = read(given, arguments.Search)
    body = {
        "question": asked.query, "corpus": server.corpus_for(asked.corpus), "mode": MODES[asked.strategy],
        "k": asked.top_k, "enhance": True, "rerank": True, "crag": asked.enable_crag,
    }  # fmt: skip
    return server.client.post("/v1/search", body)


def enhanced_chat(server: Server, given: dict[str, Any]) -> Any:
    """`POST /v1/chat` by the pipeline `enhanced`."""
    asked = read(given, arguments.Chat)
    compress = {"enabled": asked.enable_compression, "tokens": asked.context_length}
    body = {
        "question": asked.query, "corpus": server.corpus_for(asked.corpus), "pipeline": PIPELINE,
        "params": {"compress": compress}, "wait_s": WAIT_S,
    }  # fmt: skip
    return server.client.post("/v1/chat", body)


def job_submit(server: Server, given: dict[str, Any]) -> Any:
    """`POST /v1/jobs`; sent again by whatever stands in between, it is still one job."""
    asked = read(given, arguments.Submit)
    body = {name: getattr(asked, name) for name in asked.__struct_fields__}
    body["corpus"] = asked.corpus or server.corpus
    return server.client.post("/v1/jobs", body, {"Idempotency-Key": str(uuid.uuid4())})


def job_status(server: Server, given: dict[str, Any]) -> Any:
    """`GET /v1/jobs/{job}`."""
    return server.client.get(f"/v1/jobs/{segment(read(given, arguments.Job).job)}")


def job_report(server: Server, given: dict[str, Any]) -> Any:
    """`GET /v1/jobs/{job}/report`."""
    return server.client.get(f"/v1/jobs/{segment(read(given, arguments.Job).job)}/report")


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
