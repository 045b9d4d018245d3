from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

import jsonschema_rs
import msgspec
import pytest
from fastapi import APIRouter, FastAPI, Path

from services.orchestrator.api import routes
from services.orchestrator.api.routes import KnownTags, get_versions, make_tag, parse_tags, respond_with_tag, route
from shared.errors import BadRequest
from shared.shapes import Scope
from tests.api_document import api_document
from tests.unit.cases import named

pytestmark = pytest.mark.anyio

# Entity tags: who has seen what, and who may change what he has not seen.


TAG = '"3-5d0c91be77aac0de"'


@pytest.mark.parametrize("header", [TAG, f' {TAG} , W/"x"', '""', '"é"', "*", f"W/{TAG}"])
def test_lists_of_tags_are_understood(header: str) -> None:
    assert parse_tags(header, "If-Match") == KnownTags(
        frozenset(part.strip() for part in header.split(",")) - {"*"}, anything=header == "*"
    )


@pytest.mark.parametrize("header", ["", "3", '"', f"{TAG}{TAG}", f"{TAG},", "*, *", "'3'", '"a b', "\t", f"w/{TAG}"])
def test_what_is_no_tag_is_refused_by_the_name_of_its_header(header: str) -> None:
    with pytest.raises(BadRequest, match="`If-Match`"):
        parse_tags(header, "If-Match")


def test_a_writer_is_held_to_versions_of_strong_tags_alone() -> None:
    known = parse_tags(f'{TAG}, "7-0000000000000000", W/"9-0000000000000000", "abc", "1-xyz"', "If-Match")
    assert get_versions(known) == {3, 7}


def test_a_tag_changes_with_what_is_shown_and_with_the_version() -> None:
    assert make_tag(b"a", 1) == make_tag(b"a", 1)
    assert len({make_tag(b"a", 1), make_tag(b"b", 1), make_tag(b"a", 2), make_tag(b"a")}) == 4
    assert get_versions(KnownTags(frozenset({make_tag(b"a", 12)}))) == {12}


@pytest.mark.parametrize("prefix", ["", "W/"])
def test_a_reader_who_has_it_gets_304_without_a_body(prefix: str) -> None:
    first = respond_with_tag({"a": 1}, version=4, headers={"Retry-After": "1"})
    assert (first.status_code, msgspec.json.decode(first.body)) == (200, {"a": 1})
    again = respond_with_tag({"a": 1}, version=4, seen=KnownTags(frozenset({prefix + first.headers["etag"]})))
    assert (again.status_code, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert "content-type" not in again.headers


def test_a_reader_who_has_another_one_gets_it() -> None:
    seen = KnownTags(frozenset({respond_with_tag({"done": 1}, version=4).headers["etag"]}))
    assert respond_with_tag({"done": 2}, version=4, seen=seen).status_code == 200
    assert respond_with_tag({"done": 2}, seen=KnownTags(frozenset(), anything=True)).status_code == 304


# The API's document: every operation says what it wants, answers and refuses, with examples that hold.

DOCUMENT = api_document()
METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")


COUNTED = {("POST", "/v1/corpora"), ("POST", "/v1/datasets"), ("GET", "/v1/jobs/{job}/events")}
"""Of which only so many may run at once."""


class Operation(NamedTuple):
    method: str
    path: str
    says: dict[str, Any]


OPERATIONS = {
    f"{method} {path}": Operation(method.upper(), path, methods[method])
    for path, methods in DOCUMENT["paths"].items()
    for method in METHODS
    if method in methods
}
"""All of them, none left out."""


def contents(operation: Operation) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, media in operation.says.get("requestBody", {}).get("content", {}).items():
        yield f"request {name}", media
    for status, answer in operation.says["responses"].items():
        for name, media in answer.get("content", {}).items():
            yield f"{status} {name}", media


def broken_examples(operation: Operation) -> list[str]:
    found = []
    for where, media in contents(operation):
        schema = {"components": DOCUMENT["components"], **media["schema"]}
        errors = jsonschema_rs.Draft202012Validator(schema).iter_errors(media["example"])
        found += [f"{where}: {error.message} at {error.instance_path}" for error in errors]
    return found


def unclear_answers(operation: Operation) -> list[str]:
    answers = operation.says["responses"]
    unnumbered = [status for status in answers if not status.isdecimal()]
    unclear = []
    for status in [status for status in answers if status[0] in "45"]:
        problem = answers[status]["content"]["application/problem+json"]["example"]
        if problem["status"] != int(status) or not problem["hint"]:
            unclear.append(status)
    return unnumbered + unclear + ([] if any(status.startswith("2") for status in answers) else ["no success"])


def test_it_is_described() -> None:
    wrong = {}
    for name, operation in OPERATIONS.items():
        summary, description = operation.says.get("summary"), operation.says.get("description")
        if not summary or summary[-1] == "." or not description or description == summary:
            wrong[name] = (summary, description)
    assert wrong == {}


def test_every_body_has_a_schema_and_an_example_that_keeps_it() -> None:
    assert {name: found for name, each in OPERATIONS.items() if (found := named(broken_examples, each))} == {}


def test_every_success_and_every_refusal_is_documented() -> None:
    assert {name: found for name, each in OPERATIONS.items() if (found := named(unclear_answers, each))} == {}


def test_what_is_refused_before_a_route_is_reached_is_documented() -> None:
    wrong = {}
    for name, operation in OPERATIONS.items():
        keys = set() if operation.path == "/healthz" else {"401"}
        before = {"400", "403", "408", "413", "422", "431", "500", "503"} | keys
        counted = {"429"} if (operation.method, operation.path) in COUNTED else set()
        if missing := (before | counted) - operation.says["responses"].keys():
            wrong[name] = missing
    assert wrong == {}


def test_every_parameter_of_a_path_has_an_example() -> None:
    wrong = {
        f"{name}: {parameter['name']}"
        for name, operation in OPERATIONS.items()
        for parameter in operation.says.get("parameters", ())
        if parameter["in"] == "path" and "example" not in parameter
    }
    assert wrong == set()


def test_keys_are_documented_as_what_an_operator_may_ask_for() -> None:
    assert DOCUMENT["components"]["securitySchemes"]["key"]["scheme"] == "bearer"
    assert DOCUMENT["security"] == [{"key": []}, {}]


def test_two_views_of_one_name_are_refused() -> None:
    first, second = (msgspec.defstruct("TwiceUsed", [(field, int)]) for field in ("a", "b"))
    routes.answers(first, {"a": 1})
    routes.answers(first, {"a": 2})
    with pytest.raises(ValueError, match="TwiceUsed"):
        routes.answers(second, {"b": 1})
    del routes._components["TwiceUsed"]


VIEW = dict[str, int | None]


def application() -> FastAPI:
    router = APIRouter(prefix="/v1/shelves")

    @route(router, "GET", "/{shelf}", Scope.READ, "Get a shelf", routes.answers(VIEW, {"a": None}), refuses=(404,))
    async def get(shelf: Annotated[str, Path(examples=["top"])]) -> None:
        """By name."""

    app = FastAPI()
    app.include_router(router)
    routes.document_operations(app)
    return app


def test_a_route_is_documented_as_its_declaration_says() -> None:
    says = application().openapi()["paths"]["/v1/shelves/{shelf}"]["get"]
    assert says["responses"]["200"]["content"]["application/json"]["example"] == {"a": None}
    problem = says["responses"]["404"]["content"]["application/problem+json"]["example"]
    assert problem["instance"] == "/v1/shelves/{shelf}"
    assert "409" not in says["responses"]
    assert [parameter["example"] for parameter in says["parameters"]] == ["top"]
