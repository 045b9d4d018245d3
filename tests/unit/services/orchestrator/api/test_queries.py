"""A query parameter that an operation does not know, or that is given twice, is refused by name; nothing is ignored."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from services.orchestrator.api.routes import EXAMPLES
from services.orchestrator.app import build
from shared.settings import Settings
from tests.api_document import api_document

pytestmark = pytest.mark.anyio
DOCUMENT = api_document()
PARAMETERS_OF_OPERATIONS = [
    (method.upper(), path, operation.get("parameters", []))
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


@pytest.fixture(scope="module")
def app() -> Any:
    made = build(Settings())
    made.state.deps = SimpleNamespace(settings=Settings(), database=None)
    return made


@pytest.fixture
async def unserved(anyio_backend: str, app: Any) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def refuse(unserved: httpx2.AsyncClient, method: str, url: str) -> dict[str, Any]:
    reply = await unserved.request(method, url)
    assert reply.status_code == 422, f"{method} {url}: {reply.status_code} {reply.text}"
    assert reply.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = reply.json()
    assert problem["type"] == "urn:mathrag:invalid"
    return problem


def address(path: str, parameters: list[dict[str, Any]]) -> str:
    for each in parameters:
        if each["in"] == "path":
            path = path.replace(f"{{{each['name']}}}", str(each.get("example", EXAMPLES.get(each["name"]))))
    return path


async def test_every_operation_refuses_a_query_parameter_that_it_does_not_declare(unserved: httpx2.AsyncClient) -> None:
    for method, path, parameters in PARAMETERS_OF_OPERATIONS:
        problem = await refuse(unserved, method, f"{address(path, parameters)}?colour=red")
        assert problem["field"] == "colour"
        assert f"{method} {path}" in problem["hint"]


async def test_every_operation_refuses_a_query_parameter_that_is_given_twice_unless_it_is_a_list(
    unserved: httpx2.AsyncClient,
) -> None:
    lists = set()
    for method, path, parameters in PARAMETERS_OF_OPERATIONS:
        for name, schema in ((each["name"], each["schema"]) for each in parameters if each["in"] == "query"):
            if "array" in (schema.get("type"), *(part.get("type") for part in schema.get("anyOf", ()))):
                lists.add((path, name))
                continue
            problem = await refuse(unserved, method, f"{address(path, parameters)}?{name}=a&{name}=a")
            assert (problem["field"], "2 times" in problem["detail"]) == (name, True)
    assert lists == {("/v1/comparison", "job"), ("/v1/jobs/import", "column")}


@pytest.mark.parametrize(
    ("method", "url", "field", "hint"),
    [
        ("POST", "/v1/datasets?name=a3&graderr=text", "graderr", "did you mean 'grader'?"),
        ("POST", "/v1/corpora?name=a&on-error=skip", "on-error", "did you mean 'on_error'?"),
        ("GET", "/v1/jobs?stat=failed", "stat", "did you mean 'state'?"),
        ("GET", "/v1/jobs/first/samples?corect=false", "corect", "did you mean 'correct'?"),
        ("GET", "/v1/datasets?offset=10", "offset", "cursor, limit"),
        ("GET", "/v1/jobs/first?verbose=1", "verbose", "takes none"),
        ("POST", "/v1/jobs?name=a", "name", "takes none"),
        ("GET", "/v1/datasets?LIMIT=10", "LIMIT", "did you mean 'limit'?"),
        ("GET", "/v1/datasets?=10", "", "cursor, limit"),
    ],
)
async def test_an_unknown_query_parameter_is_answered_with_the_known_ones(
    unserved: httpx2.AsyncClient, method: str, url: str, field: str, hint: str
) -> None:
    problem = await refuse(unserved, method, url)
    assert problem.get("field", "") == field
    assert hint in problem["hint"]


async def test_an_operation_of_openai_refuses_them_in_its_own_form(unserved: httpx2.AsyncClient) -> None:
    reply = await unserved.get("/openai/v1/files?purpos=batch")
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "purpos"
    assert "purpose" in reply.json()["error"]["message"]


@pytest.mark.parametrize("url", ["/docs?utm_source=news", "/assets/missing.css?v=3"])
async def test_a_page_keeps_what_others_add_to_its_address(unserved: httpx2.AsyncClient, url: str) -> None:
    assert (await unserved.get(url)).status_code in (200, 404)
