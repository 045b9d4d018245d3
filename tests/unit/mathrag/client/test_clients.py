"""Both clients send the same requests and read the same answers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mathrag.client import graphs, jobs, service, texts
from mathrag.client.async_client import AsyncClient
from mathrag.client.client import Client
from mathrag.client.errors import Failed, Unreachable
from mathrag.client.request import Request
from tests.unit.commands import JOB, Server, refuses, says

pytestmark = pytest.mark.anyio
ADDRESS = "http://127.0.0.1:1"
REQUESTS: tuple[Request[Any], ...] = (
    jobs.get("a/b"), jobs.list_jobs(state="running").limited(5), jobs.submit({"name": "n"}, "key"),
    jobs.cancel("first"), texts.upload("corpora", [b"{}"], "math", format="jsonl"), service.models(),
    graphs.upload([b"{}\n", b"{}\n"], "kinship", inverse=True), graphs.get("kinship"), graphs.delete("a/b"),
)  # fmt: skip


async def by_both(request: Request[Any]) -> list[Any]:
    found: list[Any] = []
    with Client(ADDRESS) as client:
        found.append(_tried(lambda: client.send(request)))
    async with AsyncClient(ADDRESS) as other:
        try:
            found.append(await other.send(request))
        except Failed as failed:
            found.append((failed.kind, failed.message, failed.hint))
    return found


def _tried(send: Callable[[], Any]) -> Any:
    try:
        return send()
    except Failed as failed:
        return failed.kind, failed.message, failed.hint


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: f"{each.method} {each.path}")
async def test_both_send_the_same(server: Server, request_: Request[Any]) -> None:
    requests = server(says(JOB))
    assert await by_both(request_) == [JOB, JOB]
    first, second = ((each.method, each.url, each.content, dict(each.headers)) for each in requests)
    assert first == second


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_neither_falls_back_to_another_stack_than_that_of_the_named_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: type[Client] | type[AsyncClient]
) -> None:
    monkeypatch.delenv("MATHRAG_URL", raising=False)
    monkeypatch.setenv("MATHRAG_DATA_DIR", str(tmp_path))
    with pytest.raises(Unreachable, match="no stack runs on"):
        kind()
    assert kind(ADDRESS).url == ADDRESS


def test_many_lines_are_few_pieces() -> None:
    lines = [b'{"number": %d}\n' % number for number in range(50_000)]
    pieces = list(Request(path="/", method="POST", lines=lines).arguments()["content"])
    assert b"".join(pieces) == b"".join(lines)
    assert len(pieces) < 20


async def test_both_say_a_problem_in_the_servers_words(server: Server) -> None:
    server(refuses(404, "not_found", "no job 'x'", "mathrag job list"))
    first, second = await by_both(jobs.get("x"))
    assert first == second == ("not_found", "no job 'x'", "mathrag job list")


async def test_both_read_what_a_server_that_is_not_ready_says(server: Server) -> None:
    server(says({"checks": []}, 503))
    assert await by_both(service.readiness()) == [{"checks": []}] * 2


async def test_both_go_through_all_pages(server: Server) -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        last = request.url.params.get("cursor") == "more"
        page = {"data": [{"name": "b" if last else "a"}], "next_cursor": None if last else "more"}
        return httpx2.Response(200, json=page)

    server(answer)
    with Client(ADDRESS) as client:
        assert [each["name"] for each in client.all(texts.list_corpora())] == ["a", "b"]
    async with AsyncClient(ADDRESS) as other:
        assert [each["name"] async for each in other.all(texts.list_corpora())] == ["a", "b"]


async def test_events_are_told_to_either(server: Server) -> None:
    events = b"id: 1\nevent: state\ndata: {}\n\n"
    server(lambda _: httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=events))
    with Client(ADDRESS) as client, client.events(jobs.events("first", None)) as found:
        assert [event.event for event in found] == ["state"]
    async with AsyncClient(ADDRESS) as other, other.events(jobs.events("first", None)) as told:
        assert [event.event async for event in told] == ["state"]
