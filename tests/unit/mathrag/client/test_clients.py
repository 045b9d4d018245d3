"""Both clients send the same requests, read the same answers, and hold to the OpenAPI document."""

import inspect
import re
import typing
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import msgspec
import pytest

from mathrag.client import answers, graphs, jobs, service, texts
from mathrag.client.async_client import AsyncClient
from mathrag.client.client import Client, OperationGroups
from mathrag.client.comparison import Comparison
from mathrag.client.errors import Unreachable
from mathrag.client.inputs import Input
from mathrag.client.job import AsyncJob, AsyncSamples, Job, JobListing, LocalGrades, Report, Samples, Verdict
from mathrag.client.operations import Described, Download, Listing
from mathrag.client.request import Request
from mathrag.client.uploads import Progress
from tests.api_document import api_document
from tests.unit.cases import named
from tests.unit.commands import JOB, Server, refuses, says
from tests.unit.mathrag.client.both import ADDRESS, by_both

pytestmark = pytest.mark.anyio

# Both clients send the same requests and read the same answers.

REQUESTS: tuple[Request[Any], ...] = (
    jobs.get("a/b"), jobs.list_jobs(state="running").with_limit(5), jobs.submit({"name": "n"}, "key"),
    jobs.cancel("first"), texts.upload("corpora", [b"{}"], "math", format="jsonl"), service.models(),
    graphs.upload([b"{}\n", b"{}\n"], "kinship", inverse=True), graphs.get("kinship"), graphs.delete("a/b"),
)  # fmt: skip


async def sent_by_both(request: Request[Any]) -> list[Any]:
    return await by_both(lambda client: client.send(request))


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda each: f"{each.method} {each.path}")
async def test_both_send_the_same(server: Server, request_: Request[Any]) -> None:
    requests = server(says(JOB))
    assert await sent_by_both(request_) == [JOB, JOB]
    first, second = ((each.method, each.url, each.content, dict(each.headers)) for each in requests)
    assert first == second


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_neither_falls_back_to_another_stack_than_that_of_the_named_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: type[Client] | type[AsyncClient]
) -> None:
    monkeypatch.delenv("MATHRAG_URL", raising=False)
    monkeypatch.setenv("MATHRAG_DATA_DIR", str(tmp_path))
    with pytest.raises(Unreachable, match="no stack is running in"):
        kind()
    assert kind(ADDRESS).url == ADDRESS


def test_many_lines_are_few_pieces() -> None:
    lines = [b'{"number": %d}\n' % number for number in range(50_000)]
    pieces = list(Request(path="/", method="POST", lines=lines).arguments()["content"])
    assert b"".join(pieces) == b"".join(lines)
    assert len(pieces) < 20


async def test_both_say_a_problem_in_the_servers_words(server: Server) -> None:
    server(refuses(404, "not_found", "no job 'x'", "mathrag job list"))
    first, second = await sent_by_both(jobs.get("x"))
    for failed in (first, second):
        assert (failed.kind, failed.message, failed.hint) == ("not_found", "no job 'x'", "mathrag job list")


async def test_both_read_what_a_server_that_is_not_ready_says(server: Server) -> None:
    server(says({"checks": []}, 503))
    assert await sent_by_both(service.readiness()) == [{"checks": []}] * 2


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


# Every operation of the clients, as the tests walk over them.


class Found(NamedTuple):
    """An operation, and where it is."""

    group: str
    name: str
    operation: Described[..., Any]

    def __str__(self) -> str:
        return f"client.{self.group}.{self.name}"


def every_operation() -> Iterator[Found]:
    """All of them."""
    with Client("http://127.0.0.1:1") as client:
        for group, attribute in vars(OperationGroups).items():
            kind = type(getattr(client, group)) if isinstance(attribute, cached_property) else object
            for name, value in vars(kind).items():
                if isinstance(value, Described):
                    yield Found(group, name, value)


def arguments(operation: Described[..., Any]) -> dict[str, Any]:
    """Something for every argument, those with defaults included, and those that have a name of their own."""
    hints = typing.get_type_hints(operation.describe)
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(operation.describe).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            found[name] = _example(name, hints[name])
            continue
        of = typing.get_args(hints[name])
        for each, hint in typing.get_type_hints(of[0]).items() if of else ():
            found[each] = _example(each, hint)
    return found


def _example(name: str, hint: Any) -> Any:
    if name in ("progress", "reader"):
        return None
    if name == "columns":
        return {"answer": "prediction"}
    if name in ("params", "models", "metadata", "document", "job_", "retrieval", "speeds"):
        return {}
    if name in ("references", "splits"):
        return ["a", "b"]
    if name == "hops":
        return [1]
    if name == "devices" or str(hint).startswith("collections.abc.Sequence[collections.abc.Mapping"):
        return []
    return _of_kind(hint)


def _of_kind(hint: Any) -> Any:
    if typing.get_origin(hint) is typing.Literal:
        return typing.get_args(hint)[0]
    choices = typing.get_args(hint) or (hint,)
    for kind, value in ((str, "x"), (bool, True), (int, 1), (float, 0.5)):
        if kind in choices:
            return value
    literal = next((each for each in choices if typing.get_origin(each) is typing.Literal), None)
    return None if literal is None else _of_kind(literal)


# The clients hold to the OpenAPI document: an operation for each of it, and a type for everything.

DOCUMENT = api_document()
OPERATIONS = tuple(every_operation())
LEFT_OUT = {
    ("GET", "/metrics"): "for Prometheus, in its own format",
    ("GET", "/v1/jobs/{job}/events"): "`job.watch()` reads them",
}
"""Operations of the API that no group has, and why."""
UNASKED = {"limit", "cursor", "format", "delimiter", "skip_empty", "on_error", "reader", "layout"}
"""Parts of a query that clients set themselves: pages, and how an upload is written; tests of uploads have more."""
BY_HAND = (Client, AsyncClient, Job, AsyncJob, Samples, AsyncSamples, Report, Comparison, LocalGrades, Verdict,
           Progress)  # fmt: skip
OF_ONE = {"first", "sleep"}
"""Methods that only one of the clients defines as a function: for the command line, and for tests."""
RAW = {"send", "read", "all", "stream", "save", "events"}
"""What carries requests for the command line and for the groups: any request, any answer."""


@pytest.mark.parametrize(("one", "other"), [(Job, AsyncJob), (Client, AsyncClient), (Samples, AsyncSamples)])
def test_both_clients_have_the_same_methods_with_the_same_parameters(one: type[Any], other: type[Any]) -> None:
    assert _parameters(one) == _parameters(other)


def _parameters(kind: type[Any]) -> dict[str, list[str]]:
    public = inspect.getmembers(kind, inspect.isfunction)
    own = ((name, each) for name, each in public if not name.startswith("_") and name not in OF_ONE)
    return {name: list(inspect.signature(each).parameters) for name, each in own}


def documented() -> Iterator[tuple[str, str]]:
    for path, operations in DOCUMENT["paths"].items():
        if not path.startswith("/openai"):
            yield from ((method.upper(), path) for method in operations)


def place(found: Found) -> tuple[str, str]:
    request = found.operation.describe(**arguments(found.operation))
    for method, path in documented():
        pattern = re.sub(r"\{\w+\}", "[^/]+", path)
        # A path without a variable goes before one that would match it, as in the server's router.
        if method == request.method and re.fullmatch(pattern, request.path) and _fits(path, request.path):
            return method, path
    raise AssertionError(f"{found} asks for {request.method} {request.path}, which there is not")


def _fits(path: str, asked: str) -> bool:
    return "{" not in path or asked not in DOCUMENT["paths"]


def test_every_operation_of_the_api_is_a_method_of_the_clients() -> None:
    assert {place(found) for found in OPERATIONS} | LEFT_OUT.keys() == set(documented())


def misasked(found: Found) -> set[str]:
    method, path = place(found)
    request = found.operation.describe(**arguments(found.operation))
    known = {
        each["name"] for each in DOCUMENT["paths"][path][method.lower()].get("parameters", ()) if each["in"] == "query"
    }
    return (request.query.keys() - known) | (known - request.query.keys() - UNASKED)


def misread(found: Found) -> dict[str, str]:
    method, path = place(found)
    if isinstance(found.operation, Download):
        return {}
    wrong, kind = {}, found.operation.answer
    for status, response in DOCUMENT["paths"][path][method.lower()]["responses"].items():
        if status.startswith("2"):
            example = next(iter(response["content"].values()))["example"]
            one = example["data"][0] if isinstance(found.operation, Listing | JobListing) else example
            try:
                read = msgspec.json.decode(msgspec.json.encode(one), type=kind)
            except msgspec.ValidationError as error:
                wrong[status] = str(error)
            else:
                if not isinstance(read, typing.get_origin(kind) or kind):
                    wrong[status] = f"is a {type(read).__name__}"
    return wrong


def test_an_operation_asks_for_all_that_the_api_lets_it_ask() -> None:
    assert {str(found): faults for found in OPERATIONS if (faults := named(misasked, found))} == {}


def test_an_operation_reads_the_example_of_the_documentation() -> None:
    assert {str(found): faults for found in OPERATIONS if (faults := named(misread, found))} == {}


def hints() -> Iterator[tuple[str, Any]]:
    for found in OPERATIONS:
        given = typing.get_type_hints(found.operation.describe)
        yield from ((f"{found}({name})", hint) for name, hint in given.items() if name != "return")
        yield f"{found} -> ", found.operation.answer
    yield from _of_methods()
    for name, struct in vars(answers).items():
        if isinstance(struct, type) and issubclass(struct, msgspec.Struct):
            yield from ((f"{name}.{field}", hint) for field, hint in typing.get_type_hints(struct).items())


def _of_methods() -> Iterator[tuple[str, Any]]:
    for kind in BY_HAND:
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_") and name not in RAW:
                yield from ((f"{kind.__name__}.{name}({each})", hint) for each, hint in _hints_of(method))


def _hints_of(method: Any) -> Iterator[tuple[str, Any]]:
    from mathrag.client import async_connection, connection

    names = {"Connection": connection.Connection, "AsyncConnection": async_connection.AsyncConnection, "Job": Job,
             "AsyncJob": AsyncJob, "Comparison": Comparison, "Input": Input}  # fmt: skip
    for table in ("pa", "pd", "pl"):
        names[table] = type(table, (), {"Table": object, "DataFrame": object})
    yield from typing.get_type_hints(method, localns=names).items()


def test_no_public_type_is_any() -> None:
    assert [where for where, hint in hints() if _has_any(hint)] == []


def _has_any(hint: Any) -> bool:
    return hint is Any or any(_has_any(each) for each in typing.get_args(hint) if not isinstance(each, str))
