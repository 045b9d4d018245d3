"""What no honest client sends, in every place of every operation: refused in words, stored by none, never a 500."""

import copy
import itertools
import json
import random
import string
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

import httpx2
import msgspec
import pytest

from services.orchestrator.api.routes import EXAMPLES
from services.orchestrator.experiments import lifecycle
from shared.experiments import EXAMPLE as EXPERIMENT
from shared.experiments import Experiment
from shared.params import Params
from shared.storage.database import Database
from tests.api_document import api_document
from tests.faults.recording import Seen
from tests.integration import scene
from tests.integration.api import Api, finished

pytestmark = pytest.mark.anyio

Case = TypeVar("Case")
LONG = "".join(random.Random(13).choices(string.ascii_letters, k=3000))  # noqa: S311 - no secret
"""Does not compress: PostgreSQL keeps no index entry of more than 2704 bytes."""
IN_URLS = (
    "%00",
    "a%00b",
    "%ED%A0%80",
    "%FF",
    "%F0%9F%98%80",
    LONG,
    "9" * 30,
    "-" + "9" * 30,
    "9" * 5000,
    "",
)
IN_HEADERS = (
    b"\xff" * 10,
    b"9" * 30,
    b'"' + b"9" * 30 + b'-0123456789abcdef"',
    b"9" * 30 + b".0.-",
    LONG.encode(),
    b"",
)
NO_TEXT = ("\x00", "a\x00b", "\ud800")
NO_NUMBER = (10**30, -(10**30), 1 << 64, 10**4000)
OTHERS = (LONG, 1 << 63, -(1 << 63), 1e308, float("inf"), float("nan"), "", [], {}, None, True)
DEEP: Any = "x"
for _ in range(400):
    DEEP = {"a": DEEP}
DOCUMENT = api_document()
THIRDS = pytest.mark.parametrize("third", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in (1, 2))])
"""All cases take 15 s of processor time: `make test` tries a third of them, and `make slow` the rest."""
OPERATIONS = [(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods]
WITH_BODY = [
    (method, path)
    for method, path in OPERATIONS
    if "application/json" in DOCUMENT["paths"][path][method.lower()].get("requestBody", {}).get("content", {})
]


@pytest.fixture
async def api(database: Database, empty_api: Api, monkeypatch: pytest.MonkeyPatch) -> Api:
    async def wait(*_: object) -> None:
        """In vain."""

    for chat in ("services.orchestrator.api.chat", "services.orchestrator.openai.chat"):
        monkeypatch.setattr(f"{chat}.wait_for_job", wait)
    await scene.furnish(database, 3, "math-500")
    await scene.add_dataset(database, 3, "math")
    for name in ("first", "second"):
        await scene.submit_job(database, dataset="math-500", name=name)
    await finished(database)
    await scene.run_sql(database, "UPDATE jobs SET public_id = :id WHERE name = 'first'", id=EXAMPLES["job"])
    asked = Experiment(**{**EXPERIMENT, "datasets": [{"dataset": "math-500", "corpus": "docs"}], "grid": {}})
    await lifecycle.submit_once(database, scene.SETTINGS, asked, None, None)
    await scene.run_sql(database, "UPDATE corpora SET name = 'math'")
    await scene.run_sql(database, "UPDATE models SET name = 'world-' || substr(name, 3) WHERE name LIKE 'a-%'")
    return empty_api


def parameters(method: str, path: str, place: str) -> list[dict[str, Any]]:
    found = DOCUMENT["paths"][path][method.lower()].get("parameters", ())
    return [each for each in found if each["in"] == place]


def address(method: str, path: str, **hostile: str) -> str:
    usual = {"name": "new", "dataset": "math-500", "job": "first", "left": "first", "right": "second"}
    wanted = [each["name"] for each in parameters(method, path, "query")]
    query = {name: value for name, value in usual.items() if name in wanted} | hostile
    for each in parameters(method, path, "path"):
        path = path.replace(f"{{{each['name']}}}", query.pop(each["name"], str(each["example"])))
    return f"{path}?" + "&".join(f"{name}={value}" for name, value in query.items())


def body(method: str, path: str) -> Any:
    content = DOCUMENT["paths"][path][method.lower()].get("requestBody", {}).get("content", {})
    return copy.deepcopy(content["application/json"]["example"]) if "application/json" in content else None


def draw(cases: Iterable[Case], third: int) -> list[Case]:
    drawn = list(cases)
    random.Random(13).shuffle(drawn)  # noqa: S311 - no secret
    return drawn[third::3]


def leaves(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inside = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in inside:
        yield from leaves(value, (*at, key))


def with_value(tree: Any, at: tuple[Any, ...], value: Any) -> Any:
    if not at:
        return value
    copied = copy.deepcopy(tree)
    part = copied
    for key in at[:-1]:
        part = part[key]
    part[at[-1]] = value
    return copied


async def send(api: Api, method: str, url: str, content: Any = None, headers: Any = ()) -> httpx2.Response | Exception:
    sent = {"If-Match": "*", **dict(headers)} if method == "PATCH" else dict(headers)
    data = None if content is None else json.dumps(content).encode()
    kind = {} if data is None else {"Content-Type": "application/json"}
    try:
        return await api.http.request(method, url, content=data, headers={**kind, **sent})
    except Exception as error:  # noqa: BLE001 - a defect, whatever it is; all of them are listed
        return error


def undeclared(method: str, path: str, answer: httpx2.Response | Exception) -> str | None:
    if isinstance(answer, Exception):
        return repr(answer)[:200]
    known = DOCUMENT["paths"][path][method.lower()]["responses"]
    fine = str(answer.status_code) in known and answer.status_code != 500
    return None if fine else f"{answer.status_code} {answer.text[:200]}"


@pytest.mark.fault("X5")
@THIRDS
async def test_no_hostile_value_of_path_query_or_header_is_a_server_error(api: Api, seen: Seen, third: int) -> None:
    seen.describe("NUL, lone surrogates, 3,000 characters and enormous numbers in every parameter of every operation")
    defects: list[tuple[Any, ...]] = []
    cases = [
        (method, path, parameter, value)
        for method, path in OPERATIONS
        for place in ("path", "query")
        for parameter in parameters(method, path, place)
        for value in (IN_URLS if place == "query" else filter(None, IN_URLS))
    ]
    for method, path, parameter, value in draw(cases, third):
        url = address(method, path, **{parameter["name"]: value})
        answer = await send(api, method, url, body(method, path))
        defects.append((method, path, parameter["name"], value[:20], undeclared(method, path, answer)))
        if "%00" in value and isinstance(answer, httpx2.Response):
            expected = 404 if parameter["in"] == "path" else 400 if parameter["name"] == "cursor" else 422
            named = parameter["name"] if expected == 422 else None
            assert (answer.status_code, answer.json().get("field")) == (expected, named), url
    headers = [
        (method, path, parameter["name"], header)
        for method, path in OPERATIONS
        for parameter in parameters(method, path, "header")
        for header in IN_HEADERS
    ]
    for method, path, name, header in draw(headers, third):
        answer = await send(api, method, address(method, path), body(method, path), {name: header})
        defects.append((method, path, name, header[:20], undeclared(method, path, answer)))
    assert [each for each in defects if each[-1]] == []
    seen.note("no 500; NUL is refused with the parameter's name")


@pytest.mark.fault("X5")
@THIRDS
async def test_no_hostile_value_of_a_body_is_a_server_error(api: Api, seen: Seen, third: int) -> None:
    seen.describe("the same in every place of every body")
    defects = []
    cases = [
        (method, path, at, value)
        for method, path in WITH_BODY
        for at in leaves(body(method, path))
        for value in (*NO_TEXT, *NO_NUMBER, *OTHERS, DEEP)
    ]
    for method, path, at, value in draw(cases, third):
        answer = await send(api, method, address(method, path), with_value(body(method, path), at, value))
        defects.append((method, path, at, str(value)[:20], undeclared(method, path, answer)))
        if value in (*NO_TEXT, *NO_NUMBER) and isinstance(answer, httpx2.Response):
            assert answer.status_code == 422
    assert [each for each in defects if each[-1]] == []
    seen.note("no value of a body causes a 500")


@pytest.mark.fault("X5")
@THIRDS
async def test_no_hostile_parameter_of_a_job_is_a_server_error(api: Api, seen: Seen, third: int) -> None:
    seen.describe("the same in every parameter of a job, and as a name of its tables")
    example, found = body("POST", "/v1/jobs"), []
    cases = itertools.product(leaves(msgspec.to_builtins(Params())), (*NO_TEXT, *NO_NUMBER, *OTHERS))
    for at, value in draw(cases, third):
        params: Any = value
        for key in reversed(at):
            params = {key: params}
        answer = await send(api, "POST", "/v1/jobs", {**example, "params": params})
        found.append((at, str(value)[:20], undeclared("POST", "/v1/jobs", answer)))
        if value in (*NO_TEXT, *NO_NUMBER) and at and isinstance(answer, httpx2.Response):
            field = ".".join(("params", *at))
            assert (answer.status_code, answer.json().get("field")) == (422, field)
    for name in NO_TEXT:
        answer = await send(api, "POST", "/v1/jobs", {**example, "params": {"anchors": {name: "x"}}})
        assert isinstance(answer, httpx2.Response)
        assert answer.status_code == 422
    assert [each for each in found if each[2]] == []
    seen.note("422 that names the parameter")


@pytest.mark.parametrize("path", ["/v1/experiments", "/v1/experiments/plan"])
async def test_a_grid_holds_no_value_that_cannot_be_kept(api: Api, path: str) -> None:
    for value in (*NO_TEXT, *NO_NUMBER):
        asked = {**body("POST", path), "name": "new", "grid": {"crag.fallback": [value]}}
        answer = await send(api, "POST", path, asked)
        assert isinstance(answer, httpx2.Response)
        assert (answer.status_code, answer.json()["field"]) == (422, "grid.crag.fallback")


async def test_an_upload_of_hostile_values_names_their_line(api: Api) -> None:
    fields = ("id", "subject", "level", "meta", "gold_documents", "gold", "text", "problem", "question", "messages")
    values: tuple[Any, ...] = (*NO_TEXT, *NO_NUMBER, *OTHERS, DEEP, {"a": 10**30}, {"\x00": 1}, {LONG: 1}, [10**30])
    api.other = lambda _: httpx2.Response(200, json={"corpus": 1, "indexes": []})
    for what in ("corpora", "datasets"):
        for number, (field, value) in enumerate(itertools.product(fields, values)):
            line = {"id": "a", "question": "2?", "text": "2", field: value}
            try:
                reply = await api.upload(what, f"hostile-{number}", [{"id": "b", "question": "1?", "text": "1"}, line])
            except Exception as error:  # noqa: BLE001 - named with what caused it
                pytest.fail(f"{what} {field} {str(value)[:20]}: {error!r}"[:400])
            refused = reply.status_code == 422 and reply.json().get("line") == 2
            assert refused or reply.status_code in (200, 201), (what, field, str(value)[:20], reply.text[:200])


@pytest.mark.fault("X5")
@pytest.mark.parametrize("what", ["corpora", "datasets"])
async def test_an_upload_with_an_identifier_that_no_index_holds_names_its_line(api: Api, seen: Seen, what: str) -> None:
    seen.describe("a document id of 3,000 random characters")
    lines = [{"id": "a", "question": "1?", "text": "1"}, {"id": LONG, "question": "2?", "text": "2"}]
    reply = await api.upload(what, "hostile", lines)
    assert (reply.status_code, reply.json()["line"]) == (422, 2)
    assert "1024" in reply.json()["detail"]
    assert (await api.http.get(f"/v1/{what}/hostile")).status_code == 404
    lines[1]["id"] = LONG[:1024]
    api.other = lambda _: httpx2.Response(200, json={"corpus": 1, "indexes": []})
    assert (await api.upload(what, "hostile", lines)).status_code == 201
    seen.note("422 with the line number; no part of the upload is stored")
