"""The tools for MCP clients: their schemas, the requests that they send, and what is told when one fails."""

import sys
from typing import Any

import httpx2
import msgspec
import pytest
from mcp.client.client import Client as McpClient
from mcp.shared.exceptions import MCPError

from mathrag import mcp
from mathrag.cli.output import Exit
from mathrag.client.async_client import AsyncClient
from mathrag.installation import install_command
from mathrag.mcp import TOOLS, Server, build_protocol
from tests.unit.commands import JOB, mathrag, refuses
from tests.unit.commands import Server as Served

pytestmark = pytest.mark.anyio

DOCUMENTED = {
    "enhanced-search": {
        "query": {"type": "string"},
        "strategy": {"type": "string", "enum": ["semantic", "hybrid", "bm25"]},
        "enable_crag": {"type": "boolean"},
        "top_k": {"type": "integer", "default": 10},
    },
    "enhanced-chat": {
        "query": {"type": "string"},
        "context_length": {"type": "integer", "default": 4000},
        "enable_compression": {"type": "boolean", "default": True},
    },
}
"""The `properties` of both tools, as the source document prints them."""
ARGUMENTS = {
    "enhanced-search": mcp.SearchArguments, "enhanced-chat": mcp.ChatArguments,
    "corpus-create": mcp.CorpusArguments, "job-submit": mcp.SubmitArguments,
    "job-status": mcp.JobArguments, "job-report": mcp.JobArguments,
}  # fmt: skip
CORPORA = {"data": [{"name": "math"}], "next_cursor": None}


def answering(**corpora: Any) -> Any:
    def answer(request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, json=corpora or CORPORA if request.url.path == "/v1/corpora" else JOB)

    return answer


async def call(name: str, given: dict[str, Any], corpus: str | None = None) -> Any:
    async with AsyncClient() as client, McpClient(build_protocol(Server(client, corpus))) as assistant:
        return await assistant.call_tool(name, given)


async def test_the_tools_of_the_document_are_those_of_the_document() -> None:
    async with AsyncClient() as client, McpClient(build_protocol(Server(client))) as assistant:
        listed = {tool.name: tool for tool in (await assistant.list_tools()).tools}
    for name, properties in DOCUMENTED.items():
        schema = listed[name].input_schema
        assert schema == {"type": "object", "properties": {**properties, "corpus": mcp.CORPUS}}
    descriptions = [listed[name].description for name in DOCUMENTED]
    assert descriptions == [
        "Enhanced semantic search with query optimization and hybrid retrieval",
        "Enhanced RAG chat with query optimization and result refinement",
    ]
    assert list(listed) == [
        "enhanced-search",
        "enhanced-chat",
        "corpus-create",
        "job-submit",
        "job-status",
        "job-report",
    ]


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_what_is_read_is_what_is_shown(tool: Any) -> None:
    kind = ARGUMENTS[tool.name]
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    assert fields.keys() == tool.schema["properties"].keys()
    for name, said in tool.schema["properties"].items():
        if "default" in said:
            assert fields[name].default == said["default"]
    needed = {name for name, field in fields.items() if field.required}
    assert needed == set(tool.schema.get("required", ["query"]))


async def test_a_search_asks_for_all_that_needs_no_model(server: Served) -> None:
    requests = server(answering())
    for strategy in ("semantic", "bm25"):
        await call("enhanced-search", {"query": "What?", "strategy": strategy, "enable_crag": False, "top_k": 3})
    answer = await call("enhanced-search", {"query": "What?"})
    sent = [msgspec.json.decode(each.content) for each in requests if each.url.path == "/v1/search"]
    common = {"question": "What?", "corpus": "math", "enhance": True, "rerank": True}
    assert sent == [
        {**common, "mode": "dense", "k": 3, "crag": False},
        {**common, "mode": "sparse", "k": 3, "crag": False},
        {**common, "mode": "hybrid", "k": 10, "crag": True},
    ]
    assert (answer.is_error, answer.structured_content) == (False, JOB)
    assert msgspec.json.decode(answer.content[0].text) == JOB


async def test_a_chat_takes_the_documents_arguments_as_parameters(server: Served) -> None:
    requests = server(answering())
    await call("enhanced-chat", {"query": "What?", "context_length": 512}, corpus="own")
    await call("enhanced-chat", {"query": "What?", "corpus": "named"}, corpus="own")
    await call("enhanced-chat", {"query": "What?", "enable_compression": False}, corpus="own")
    first, second, third = (msgspec.json.decode(each.content) for each in requests)
    assert (first["corpus"], first["pipeline"]) == ("own", "enhanced")
    assert first["params"] == {"compress": {"enabled": True, "tokens": 512}}
    assert (second["corpus"], second["params"]) == ("named", {"compress": {"enabled": True, "tokens": 4000}})
    assert third["params"] == {"compress": {"enabled": False}}


async def test_texts_are_uploaded_as_lines_of_a_corpus(server: Served) -> None:
    requests = server(answering())
    await call("corpus-create", {"name": "notes", "documents": {"a.md": "One\ntwo.", "b.md": "三"}})
    assert [(each.method, each.url.raw_path) for each in requests] == [("POST", b"/v1/corpora?name=notes")]
    assert [msgspec.json.decode(line) for line in requests[0].content.splitlines()] == [
        {"id": "a.md", "text": "One\ntwo."},
        {"id": "b.md", "text": "三"},
    ]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_clients_of_either_age_are_served(server: Served, mode: str) -> None:
    server(answering())
    async with AsyncClient() as client, McpClient(build_protocol(Server(client)), mode=mode) as assistant:
        assert len((await assistant.list_tools()).tools) == len(TOOLS)
        answer = await assistant.call_tool("job-status", {"job": "first"})
        refused = await assistant.call_tool("job-status", {})
    assert (answer.structured_content, refused.is_error) == (JOB, True)


async def test_jobs_are_submitted_once_and_asked_about(server: Served) -> None:
    requests = server(answering())
    given = {"name": "n", "dataset": "d", "pipeline": "dense", "params": {"seed": 1}}
    await call("job-submit", given)
    await call("job-status", {"job": "a/b"})
    await call("job-report", {"job": "first"})
    assert [(each.method, each.url.raw_path) for each in requests] == [
        ("POST", b"/v1/jobs"), ("GET", b"/v1/jobs/a%2Fb"), ("GET", b"/v1/jobs/first/report"),
    ]  # fmt: skip
    assert requests[0].headers["idempotency-key"]
    assert msgspec.json.decode(requests[0].content) == {
        **given,
        "corpus": None,
        "limit": None,
        "repeats": 1,
        "models": {},
    }


async def test_the_key_of_the_environment_is_sent(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = server(answering())
    monkeypatch.setenv("MATHRAG_API_KEY", "mrg_secret")
    await call("job-status", {"job": "first"})
    assert requests[0].headers["authorization"] == "Bearer mrg_secret"


@pytest.mark.parametrize(
    ("name", "given", "words"),
    [
        ("enhanced-search", {}, ("`query`",)),
        ("enhanced-search", {"query": "x", "top_k": "3"}, ("`top_k`", "int")),
        ("enhanced-search", {"query": "x", "strategy": "fuzzy"}, ("`strategy`", "fuzzy")),
        ("enhanced-chat", {"query": "x", "topk": 3}, ("`topk`", "context_length")),
        (
            "enhanced-chat",
            {"query": "x", "context_length": 512, "enable_compression": False},
            ("`context_length`", "`enable_compression` is false", "remove"),
        ),
        ("job-status", {}, ("`job`",)),
        ("corpus-create", {"name": "n", "documents": {}}, ("`documents`", ">= 1")),
        ("corpus-create", {"name": "n", "documents": {str(n): "x" for n in range(1001)}}, ("`documents`", "<= 1000")),
        (
            "corpus-create",
            {"name": "n", "documents": {"a": "x" * (1 << 20)}},
            ("`documents`", "1,048,5", "more than the 1,048,576", "mathrag corpus create"),
        ),
    ],
)
async def test_what_cannot_be_used_is_named(
    server: Served, name: str, given: dict[str, Any], words: tuple[str, ...]
) -> None:
    requests = server(answering())
    answer = await call(name, given)
    assert answer.is_error
    assert [word for word in words if word not in answer.content[0].text] == []
    assert not requests


@pytest.mark.parametrize(
    ("corpora", "words"),
    [
        (
            [{"name": "a"}, {"name": "b"}],
            "there are several: a, b\nfix: use --corpus NAME, or `corpus` in an MCP call",
        ),
        ([], "mathrag corpus create"),
    ],
)
async def test_where_there_is_not_one_corpus_it_is_asked_for(server: Served, corpora: Any, words: str) -> None:
    server(answering(data=corpora, next_cursor=None))
    answer = await call("enhanced-search", {"query": "x"})
    assert (answer.is_error, words in answer.content[0].text) == (True, True)


def broken(_: httpx2.Request) -> httpx2.Response:
    raise ZeroDivisionError("of ours")


@pytest.mark.parametrize(
    ("handler", "words"),
    [
        (refuses(403, "forbidden", "lacks the scope 'submit'", "mathrag key create"), ("'submit'", "fix: mathrag key")),
        (refuses(503, "unavailable", "the retriever did not answer", "see GET /readyz"), ("retriever", "/readyz")),
        (broken, ("ZeroDivisionError", "defect")),
    ],
)
async def test_a_refusal_is_told_to_the_model_with_its_fix(
    server: Served, handler: Any, words: tuple[str, ...]
) -> None:
    server(handler)
    answer = await call("job-status", {"job": "first"})
    told = answer.content[0].text
    assert answer.is_error
    assert [word for word in words if word not in told] == []
    assert "Traceback" not in told


async def test_a_tool_that_there_is_not_is_an_error_of_the_protocol() -> None:
    async with AsyncClient() as client, McpClient(build_protocol(Server(client))) as assistant:
        with pytest.raises(MCPError, match="enhanced-search, enhanced-chat"):
            await assistant.call_tool("enhanced-magic", {})


def test_without_the_sdk_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "mcp" or name == "mathrag.mcp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", None)
    ended = mathrag("mcp")
    assert (ended.exit_code, install_command("mathrag[mcp]") in ended.stderr) == (Exit.USAGE, True), ended.stderr
