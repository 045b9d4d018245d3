"""The API's document: every operation says what it wants, answers and refuses, with examples that hold."""

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import jsonschema_rs
import msgspec
import pytest
from fastapi import APIRouter, FastAPI, Path

from services.orchestrator.api import openapi
from services.orchestrator.api.routes import route
from services.orchestrator.app import build
from shared.contracts.api_keys import Scope
from shared.settings import Settings

DOCUMENT: dict[str, Any] = build(Settings(database_url="unused")).openapi()
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")


COUNTED = {("POST", "/v1/corpora"), ("POST", "/v1/datasets"), ("GET", "/v1/jobs/{job}/events")}
"""Of which only so many may run at once."""


class Operation(NamedTuple):
    """One of the document's."""

    method: str
    path: str
    says: dict[str, Any]


def operations() -> Iterator[Any]:
    """All of them, none left out."""
    for path, methods in DOCUMENT["paths"].items():
        for method in METHODS:
            if method in methods:
                yield pytest.param(Operation(method.upper(), path, methods[method]), id=f"{method} {path}")


every = pytest.mark.parametrize("operation", list(operations()))


def contents(operation: Operation) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, media) of the request and of every answer."""
    for name, media in operation.says.get("requestBody", {}).get("content", {}).items():
        yield f"request {name}", media
    for status, answer in operation.says["responses"].items():
        for name, media in answer.get("content", {}).items():
            yield f"{status} {name}", media


@every
def test_it_is_described(operation: Operation) -> None:
    """In a line, and in sentences that do not just repeat it."""
    summary, description = operation.says["summary"], operation.says["description"]
    assert summary
    assert summary[-1] != "."
    assert description
    assert description != summary


@every
def test_every_body_has_a_schema_and_an_example_that_keeps_it(operation: Operation) -> None:
    """What is asked, what is answered, and every problem."""
    for where, media in contents(operation):
        schema = {"components": DOCUMENT["components"], **media["schema"]}
        found = jsonschema_rs.Draft202012Validator(schema).iter_errors(media["example"])
        assert not [f"{where}: {error.message} at {error.instance_path}" for error in found]


@every
def test_every_success_and_every_refusal_is_documented(operation: Operation) -> None:
    """Each with its number: no wildcard; problems as problems, with their own status in the example."""
    answers = operation.says["responses"]
    assert all(status.isdecimal() for status in answers)
    assert any(status.startswith("2") for status in answers)
    for status in [status for status in answers if status[0] in "45"]:
        problem = answers[status]["content"]["application/problem+json"]["example"]
        assert problem["status"] == int(status)
        assert problem["hint"]


@every
def test_what_is_refused_before_a_route_is_reached_is_documented(operation: Operation) -> None:
    """Every request passes the connection's limits, the check of pages, and that of lengths; some are counted."""
    keys = set() if operation.path == "/healthz" else {"401"}
    before = {"400", "403", "408", "413", "422", "431", "500", "503"} | keys
    counted = {"429"} if (operation.method, operation.path) in COUNTED else set()
    assert before | counted <= operation.says["responses"].keys()


@every
def test_every_parameter_is_explained_by_an_example_or_a_description(operation: Operation) -> None:
    """Those of the path by an example."""
    for parameter in operation.says.get("parameters", ()):
        assert parameter["in"] != "path" or "example" in parameter, parameter["name"]


def test_keys_are_documented_as_what_an_operator_may_ask_for() -> None:
    """As a bearer token, or nothing."""
    assert DOCUMENT["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert DOCUMENT["security"] == [{"key": []}, {}]


def test_two_views_of_one_name_are_refused() -> None:
    """One would silently take the other's place in the document."""
    first, second = (msgspec.defstruct("TwiceUsed", [(field, int)]) for field in ("a", "b"))
    openapi.answers(first, {"a": 1})
    openapi.answers(first, {"a": 2})
    with pytest.raises(ValueError, match="TwiceUsed"):
        openapi.answers(second, {"b": 1})
    del openapi._components["TwiceUsed"]


VIEW = dict[str, int | None]


def application() -> FastAPI:
    """One route, written as every route of the API is."""
    router = APIRouter(prefix="/v1/shelves")

    @route(router, "GET", "/{shelf}", Scope.READ, "Get a shelf", openapi.answers(VIEW, {"a": None}), refuses=(404,))
    async def get(shelf: Annotated[str, Path(examples=["top"])]) -> None:
        """By name."""

    app = FastAPI()
    app.include_router(router)
    openapi.install(app)
    return app


def test_a_route_is_documented_as_its_declaration_says() -> None:
    """Nulls of examples are kept, which FastAPI drops; the route's refusals stand beside those of every route."""
    says = application().openapi()["paths"]["/v1/shelves/{shelf}"]["get"]
    assert says["responses"]["200"]["content"]["application/json"]["example"] == {"a": None}
    problem = says["responses"]["404"]["content"]["application/problem+json"]["example"]
    assert problem["instance"] == "/v1/shelves/{shelf}"
    assert "409" not in says["responses"]
    assert [parameter["example"] for parameter in says["parameters"]] == ["top"]
