"""Every operation of the API: how it is described, what it refuses, and how errors look."""

import json
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Annotated, Any, NamedTuple

import httpx2
import jsonschema_rs
import msgspec
import pytest
from fastapi import APIRouter, FastAPI, Path

from mathrag.errors import BadRequest, Invalid
from services.orchestrator.api import routes
from services.orchestrator.api.routes import (
    EXAMPLES,
    KnownTags,
    get_versions,
    make_tag,
    parse_tags,
    respond_with_tag,
    route,
)
from services.orchestrator.app import build
from shared.params import Params
from shared.runtime.parameters import parse_params
from shared.settings import Limits, Settings
from shared.shapes import Scope
from shared.storage import configurations
from shared.storage.configurations import SHIPPED, Configuration
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


def examples_of(operation: Operation) -> list[tuple[str, str, Any]]:
    return [(json.dumps(media["schema"]), where, media["example"]) for where, media in contents(operation)]


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
    by_schema: dict[str, list[tuple[str, Any]]] = {}
    for name, each in OPERATIONS.items():
        for schema, where, example in named(examples_of, each):
            by_schema.setdefault(schema, []).append((f"{name}: {where}", example))
    broken = []
    for schema, examples in by_schema.items():
        # One at a time: each holds all components.
        validator = jsonschema_rs.Draft202012Validator({"components": DOCUMENT["components"], **json.loads(schema)})
        for where, example in examples:
            broken += [f"{where}: {error.message} at {error.instance_path}" for error in validator.iter_errors(example)]
    assert broken == []


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


# Every error is a problem that names what is wrong and what to do.

JOB = {"name": "a", "dataset": "d", "pipeline": "dense"}


@pytest.fixture(scope="module")
def app() -> Any:
    made = build(Settings())
    made.state.deps = SimpleNamespace(settings=Settings(), database=None)
    return made


@pytest.fixture
async def api(anyio_backend: str, app: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx2.AsyncClient]:
    async def holding(_database: object) -> Configuration:
        return SHIPPED

    monkeypatch.setattr(configurations, "load_newest", holding)
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def check(reply: httpx2.Response, status: int, kind: str) -> dict[str, Any]:
    assert reply.status_code == status
    assert reply.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = reply.json()
    assert (problem["type"], problem["status"]) == (f"urn:mathrag:{kind}", status)
    assert problem["instance"] == reply.request.url.path
    return problem


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"repeets": 2}, "repeets", "there is no such field"),
        ({"repeats": 0}, "repeats", "greater than or equal to 1"),
        ({"reuse": "some"}, "reuse", "'all' or 'none'"),
        ({"dataset": None}, "dataset", "valid string"),
        ({"name": "a b"}, "name", "is not a valid name"),
        ({"models": {"judge": 3}}, "models.judge", "valid string"),
        ({"params": {"candidate": 3}}, "params.candidate", "there is no such field"),
        ({"params": {"gate": {"tua": 0.3}}}, "params.gate.tua", "there is no such field"),
        ({"params": {"gate": {"tau": "x"}}}, "params.gate.tau", "must be a number between -1 and 1"),
        ({"params": {"gate": {"tau": 7}}}, "params.gate.tau", "between -1 and 1"),
        ({"params": {"context_size": 11}}, "params.context_size", "between 1 and 10"),
        ({"params": {"gate": {"on_unusable": "x"}}}, "params.gate.on_unusable", '"fail" or "rules"'),
        ({"params": {"judge": {"max_tokens": 0}}}, "params.judge.max_tokens", "between 1"),
    ],
)
async def test_a_field_that_cannot_be_used_is_named(
    api: httpx2.AsyncClient, change: dict[str, Any], field: str, words: str
) -> None:
    problem = check(await api.post("/v1/jobs", json={**JOB, **change}), 422, "invalid")
    assert problem["field"] == field
    assert problem["detail"].startswith(f"`{field}`: ")
    assert words in problem["detail"]


async def test_an_unknown_parameter_is_answered_with_the_known_ones(api: httpx2.AsyncClient) -> None:
    reply = await api.post("/v1/jobs", json={**JOB, "params": {"gate": {"tua": 0.3}}})
    assert "tau" in check(reply, 422, "invalid")["hint"]


@pytest.mark.parametrize("body", [b"{", b"[]", b"", b"\xff"])
async def test_a_body_that_is_no_object_is_refused(api: httpx2.AsyncClient, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    reply = await api.post("/v1/jobs", content=body, headers=headers)
    assert reply.status_code in (400, 422)
    check(reply, reply.status_code, "bad_request" if reply.status_code == 400 else "invalid")


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
async def test_numbers_that_json_does_not_have_are_refused(api: httpx2.AsyncClient, value: str) -> None:
    body = f'{{"name": "a", "dataset": "d", "pipeline": "p", "params": {{"rrf_weight": {value}}}}}'
    reply = await api.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
    check(reply, 422, "invalid")


async def test_a_path_that_does_not_exist_is_a_problem_too(api: httpx2.AsyncClient) -> None:
    assert "GET /v1/nothing" in check(await api.get("/v1/nothing"), 404, "not_found")["detail"]
    refused = await api.delete("/v1/jobs")
    check(refused, 405, "method_not_allowed")
    assert refused.headers["allow"] == "GET, POST"


async def test_an_unexpected_error_tells_nothing_of_itself(api: httpx2.AsyncClient) -> None:
    problem = check(await api.get("/v1/jobs"), 500, "internal")
    assert "NoneType" not in str(problem)


async def test_a_body_over_the_limit_is_refused_before_it_is_read(api: httpx2.AsyncClient) -> None:
    check(await api.post("/v1/jobs", content=b" " * (Limits().body_bytes + 1)), 413, "too_large")

    async def endless() -> AsyncIterator[bytes]:
        raise AssertionError("was read")
        yield b""

    check(await api.post("/v1/jobs", content=endless()), 413, "too_large")


def test_parameters_left_out_have_their_defaults() -> None:
    assert parse_params({}) == Params()
    assert parse_params({"gate": {"tau": 0.3}}).gate.items == Params().gate.items


def test_a_whole_number_is_a_float_where_one_is_wanted() -> None:
    assert parse_params({"quality_weight": 1}).quality_weight == 1.0


def test_a_parameter_of_another_type_is_named() -> None:
    with pytest.raises(Invalid, match=r"`params\.gate`: must be a group of tau, items, .*, not \[\]"):
        parse_params({"gate": []})


def test_an_unknown_field_of_a_decoding_is_refused() -> None:
    with pytest.raises(Invalid, match="there is no such field"):
        parse_params({"generate": {"temprature": 1.0}})


# A query parameter that an operation does not know, or that is given twice, is refused by name; nothing is ignored.

PARAMETERS_OF_OPERATIONS = [
    (method.upper(), path, operation.get("parameters", []))
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
]


async def refuse(api: httpx2.AsyncClient, method: str, url: str) -> dict[str, Any]:
    reply = await api.request(method, url)
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


async def test_every_operation_refuses_a_query_parameter_that_it_does_not_declare(api: httpx2.AsyncClient) -> None:
    for method, path, parameters in PARAMETERS_OF_OPERATIONS:
        problem = await refuse(api, method, f"{address(path, parameters)}?colour=red")
        assert problem["field"] == "colour"
        assert f"{method} {path}" in problem["hint"]


async def test_every_operation_refuses_a_query_parameter_that_is_given_twice_unless_it_is_a_list(
    api: httpx2.AsyncClient,
) -> None:
    lists = set()
    for method, path, parameters in PARAMETERS_OF_OPERATIONS:
        for name, schema in ((each["name"], each["schema"]) for each in parameters if each["in"] == "query"):
            if "array" in (schema.get("type"), *(part.get("type") for part in schema.get("anyOf", ()))):
                lists.add((path, name))
                continue
            problem = await refuse(api, method, f"{address(path, parameters)}?{name}=a&{name}=a")
            assert (problem["field"], "2 times" in problem["detail"]) == (name, True)
    uploads = {("/v1/corpora", "column"), ("/v1/datasets", "column")}
    uploads |= {("/v1/jobs/import", name) for name in ("column", "metric", "model")}
    assert lists == {("/v1/comparison", "job"), *uploads}


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
    api: httpx2.AsyncClient, method: str, url: str, field: str, hint: str
) -> None:
    problem = await refuse(api, method, url)
    assert problem.get("field", "") == field
    assert hint in problem["hint"]


async def test_an_operation_of_openai_refuses_them_in_its_own_form(api: httpx2.AsyncClient) -> None:
    reply = await api.get("/openai/v1/files?purpos=batch")
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == "purpos"
    assert "purpose" in reply.json()["error"]["message"]


@pytest.mark.parametrize("url", ["/docs?utm_source=news", "/assets/missing.css?v=3"])
async def test_a_page_keeps_what_others_add_to_its_address(api: httpx2.AsyncClient, url: str) -> None:
    assert (await api.get(url)).status_code in (200, 404)
