"""`mathrag mcp` as an assistant starts it: the SDK's own client, over standard input and output, against a stack."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.running import DEADLINE_S, RunningStack, ended

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def assistant(url: str, errors: Path, *options: str) -> AsyncIterator[Client]:
    command = ["-m", "mathrag.cli.main", "mcp", *options]
    started = StdioServerParameters(
        command=sys.executable, args=command, env={"MATHRAG_URL": url, "MATHRAG_API_KEY": ""}
    )
    with errors.open("w") as stream:
        async with Client(stdio_client(started, errlog=stream), read_timeout_seconds=DEADLINE_S) as client:
            yield client


async def told(client: Client, tool: str, **given: Any) -> Any:
    answer = await client.call_tool(tool, given)
    assert not answer.is_error, answer.content
    assert json.loads(answer.content[0].text) == answer.structured_content  # type: ignore[union-attr]
    return answer.structured_content


async def test_an_assistant_searches_asks_and_runs_jobs(stack: RunningStack, tmp_path: Path) -> None:
    question = "What is 3 plus 4?"
    # Other tests of the session add corpora, so that one has to be chosen.
    async with assistant(stack.url, tmp_path / "errors", "--corpus", "world") as client:
        listed = [tool.name for tool in (await client.list_tools()).tools]
        assert listed == ["enhanced-search", "enhanced-chat", "job-submit", "job-status", "job-report"]
        found = await told(client, "enhanced-search", query=question, top_k=3)
        assert (found["corpus"], found["mode"], len(found["hits"])) == ("world", "hybrid", 3)
        assert found["action"] in ("correct", "ambiguous", "incorrect")
        assert {"intent", "rerank", "crag"} <= {each["stage"] for each in found["decisions"]}
        answer = await told(client, "enhanced-chat", query=question, context_length=256)
        chat = await told(client, "job-status", job=answer["job"])
        stack.wait(chat["id"], ended)
        assert (chat["pipeline"], chat["params"]["compress"]["tokens"]) == ("enhanced", 256)
        assert stack.get(f"/v1/jobs/{chat['id']}")["state"] == "completed"
        asked = {"name": "by-mcp", "dataset": "world", "corpus": "world", "pipeline": "sparse"}
        job = (await told(client, "job-submit", **asked))["id"]
        stack.wait(job, ended)
        assert (await told(client, "job-status", job=job))["state"] == "completed"
        assert (await told(client, "job-report", job="by-mcp"))["accuracy"]["graded"] > 0
        refused = await client.call_tool("enhanced-search", {"query": question, "corpus": "nowhere"})
        assert refused.is_error
        assert "fix: mathrag corpus list" in refused.content[0].text  # type: ignore[union-attr]
    assert (tmp_path / "errors").read_text() == ""


async def test_an_api_that_is_away_is_the_tools_error(tmp_path: Path) -> None:
    async with assistant("http://127.0.0.1:1", tmp_path / "errors", "--corpus", "world") as client:
        assert (await client.list_tools()).tools
        answer = await client.call_tool("enhanced-search", {"query": "What?"})
        assert (answer.is_error, "mathrag up" in answer.content[0].text) == (True, True)  # type: ignore[union-attr]
    assert (tmp_path / "errors").read_text() == ""
