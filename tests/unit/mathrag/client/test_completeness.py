"""The clients hold to the OpenAPI document: an operation for each of it, and a type for everything."""

import inspect
import re
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from mathrag.client import answers
from mathrag.client.async_client import AsyncClient
from mathrag.client.client import Client
from mathrag.client.groups.jobs import AsyncPipeline, Pipeline
from mathrag.client.job import AsyncJob, AsyncSamples, Job, JobListing, LocalGrades, Report, Samples, Verdict
from mathrag.client.operations import Download, Listing
from mathrag.client.uploads import Progress
from tests.api_document import api_document
from tests.unit.cases import named
from tests.unit.mathrag.client.operations import Found, arguments, every_operation

pytestmark = pytest.mark.anyio

DOCUMENT = api_document()
OPERATIONS = tuple(every_operation())
LEFT_OUT = {
    ("GET", "/metrics"): "for Prometheus, in its own format",
    ("GET", "/v1/jobs/{job}/events"): "`job.watch()` reads them",
}
"""Operations of the API that no group has, and why."""
UNASKED = {"limit", "cursor", "format", "delimiter", "skip_empty", "on_error", "reader", "layout"}
"""Parts of a query that clients set themselves: pages, and how an upload is written; tests of uploads have more."""
BY_HAND = (Client, AsyncClient, Job, AsyncJob, Pipeline, AsyncPipeline, Samples, AsyncSamples, Report, LocalGrades,
           Verdict, Progress)  # fmt: skip
RAW = {"send", "read", "all", "stream", "save", "events"}
"""What carries requests for the command line and for the groups: any request, any answer."""


@pytest.mark.parametrize(("one", "other"), [(Job, AsyncJob), (Pipeline, AsyncPipeline), (Samples, AsyncSamples)])
def test_both_clients_have_the_same_methods_with_the_same_parameters(one: type[Any], other: type[Any]) -> None:
    assert _parameters(one) == _parameters(other)


def _parameters(kind: type[Any]) -> dict[str, list[str]]:
    public = inspect.getmembers(kind, inspect.isfunction)
    return {name: list(inspect.signature(each).parameters) for name, each in public if not name.startswith("_")}


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

    names = {"Connection": connection.Connection, "AsyncConnection": async_connection.AsyncConnection,
             "Pipeline": Pipeline, "AsyncPipeline": AsyncPipeline}  # fmt: skip
    for table in ("pa", "pd", "pl"):
        names[table] = type(table, (), {"Table": object, "DataFrame": object})
    yield from typing.get_type_hints(method, localns=names).items()


def test_no_public_type_is_any() -> None:
    assert [where for where, hint in hints() if _has_any(hint)] == []


def _has_any(hint: Any) -> bool:
    return hint is Any or any(_has_any(each) for each in typing.get_args(hint) if not isinstance(each, str))
