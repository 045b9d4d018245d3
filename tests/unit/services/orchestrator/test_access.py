"""Who asks, what each may do, and how often."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import iter_route_contexts
from sqlalchemy.exc import OperationalError
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as AsgiScope

from mathrag.errors import Unavailable
from services.orchestrator.access.identity import (
    COOKIE,
    FRESH_S,
    LIFETIME_S,
    UNKNOWN_S,
    USED_S,
    Actor,
    Identity,
    Keyring,
    Sessions,
    authorise,
    get_declared_scope,
)
from services.orchestrator.access.limits import ConcurrencyLimit, SecurityHeaders
from services.orchestrator.api import routes
from services.orchestrator.api.routes import route
from shared import shapes
from shared.access.filters import OPENAI
from shared.settings import Limits, Settings
from shared.shapes import Scope
from shared.storage import keys
from shared.storage.keys import ValidKey
from tests.api_document import api_document
from tests.api_document import application as the_api
from tests.unit.asgi import ask, reached

pytestmark = pytest.mark.anyio

# Every route asks for a scope; a key without it is told which one; a route that declares none answers nobody.


READ, SUBMIT, OPERATE = Scope.READ, Scope.SUBMIT, Scope.OPERATE


class Keys:
    def __init__(self, *scopes: Scope) -> None:
        self._scopes = scopes

    async def find(self, _database: object, key: str) -> ValidKey | None:
        return ValidKey(1, "alice", "mrg_0", b"", self._scopes) if key == "known" else None


def application(keyring: Any) -> FastAPI:
    app = FastAPI(dependencies=[Depends(authorise)])
    app.state.deps = SimpleNamespace(admission=None, settings=Settings())
    router = APIRouter(prefix="/v1/jobs")
    route(router, "GET", "", READ, "Tell who asks", {})(reader)
    route(router, "POST", "", SUBMIT, "Tell who asks", {})(submitter)
    app.include_router(router)
    route(app.router, "GET", "/healthz", None, "Tell who asks", {})(anyone)
    app.get("/undeclared")(undeclared)
    app.add_middleware(Identity, keyring=keyring, sessions=Sessions(""))
    routes.answer_problems(app)
    return app


async def reader(actor: Actor) -> str:
    return actor


async def submitter(actor: Actor) -> str:
    return actor


async def anyone(actor: Actor) -> str:
    return actor


async def undeclared(actor: Actor) -> str:
    return actor


async def asked(scopes: Sequence[Scope] | None, method: str, path: str, key: str | None = "known") -> httpx2.Response:
    app = application(None if scopes is None else Keys(*scopes))
    return await ask(lambda _: app, method, path, headers={"authorization": f"Bearer {key}"} if key else {})


def declared(*, pages: bool = False) -> dict[tuple[str, str], Scope | None]:
    return {
        (method, str(each.path)): get_declared_scope(each.endpoint)
        for each in iter_route_contexts(the_api().routes)
        for method in each.methods or ()
        if each.endpoint is not None and each.endpoint.__module__.startswith("services.orchestrator.web") is pages
    }


def test_every_route_declares_its_scope() -> None:
    paths = api_document()["paths"]
    documented = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    others = {(method, path) for method, path in declared() if path.startswith(OPENAI)}
    assert len(others) == 14
    assert declared().keys() == documented | others | {("GET", "/openapi.json"), ("GET", "/docs")}


def test_only_healthz_is_open() -> None:
    assert [route for route, scope in declared().items() if scope is None] == [("GET", "/healthz")]


def test_a_browser_gets_what_it_needs_to_sign_in_and_nothing_else_without_a_key() -> None:
    assert {route for route, scope in declared(pages=True).items() if scope is None} == {
        ("GET", "/assets/{path:path}"),
        ("GET", "/favicon.ico"),
        ("GET", "/sign-in"),
        ("POST", "/sign-in"),
        ("POST", "/sign-out"),
    }


def test_no_page_changes_anything_for_a_key_that_may_only_read() -> None:
    forms = {path: scope for (method, path), scope in declared(pages=True).items() if method == "POST"}
    assert {path for path, scope in forms.items() if scope in (READ, None)} <= {
        "/sign-in",
        "/sign-out",
        "/search",
        "/plan",
    }


def test_pages_are_not_in_the_document() -> None:
    assert not {path for _, path in declared(pages=True)} & api_document()["paths"].keys()


def test_whatever_changes_something_asks_for_more_than_read() -> None:
    changing = {route: scope for route, scope in declared().items() if route[0] != "GET"}
    assert {route for route, scope in changing.items() if scope is READ} == {
        ("POST", "/v1/search"),
        ("POST", "/v1/plan"),
        ("POST", "/v1/experiments/plan"),
        ("POST", "/openai/v1/embeddings"),
        ("POST", "/openai/v1/rerank"),
    }
    assert {path for (_, path), scope in changing.items() if scope is OPERATE} == {
        "/v1/configuration",
        "/v1/configuration/restore",
        "/v1/gpus/{device}/drain",
        "/v1/gpus/{device}/release",
        "/v1/gpus/{device}/retry",
        "/v1/indexes/orphans",
    }


@pytest.mark.parametrize(
    ("scopes", "method", "path", "status"),
    [
        ([READ], "GET", "/v1/jobs", 200),
        ([SUBMIT], "POST", "/v1/jobs", 200),
        ([OPERATE], "POST", "/v1/jobs", 200),
        ([READ], "POST", "/v1/jobs", 403),
        ([SUBMIT], "GET", "/v1/jobs", 403),
        ([OPERATE], "GET", "/undeclared", 403),
        (None, "GET", "/undeclared", 403),
        (None, "POST", "/v1/jobs", 200),
        ([READ], "GET", "/nowhere", 404),
        ([READ], "DELETE", "/v1/jobs", 405),
    ],
)
async def test_a_route_is_answered_to_its_scope(
    scopes: Sequence[Scope] | None, method: str, path: str, status: int
) -> None:
    assert (await asked(scopes, method, path)).status_code == status


async def test_a_key_that_may_not_is_told_which_scope_it_lacks() -> None:
    problem = (await asked([READ], "POST", "/v1/jobs")).json()
    assert problem["type"] == "urn:mathrag:forbidden"
    assert "'submit'" in problem["detail"]
    assert problem["hint"] == "mathrag key create NAME --scope submit"


@pytest.mark.parametrize("key", [None, "unknown"])
@pytest.mark.parametrize("path", ["/v1/jobs", "/nowhere"])
async def test_without_a_valid_key_nothing_is_told(key: str | None, path: str) -> None:
    reply = await asked([READ], "GET", path, key)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")
    assert reply.json()["type"] == "urn:mathrag:unauthorized"


async def test_healthz_needs_no_key() -> None:
    assert (await asked([], "GET", "/healthz", None)).status_code == 200


async def test_handlers_know_who_asks() -> None:
    assert (await asked([READ], "GET", "/v1/jobs")).json() == "alice"
    assert (await asked(None, "GET", "/v1/jobs", None)).json() == "local"


# Cookies of people who signed in.


class Clock:
    now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


def start(sessions: Sessions) -> str:
    response = Response()
    sessions.start(response, "mrg_00000000", https=False)
    return response.headers["set-cookie"].partition(";")[0]


def find_prefix(sessions: Sessions, cookie: str) -> str | None:
    found = sessions.find(Headers({"cookie": cookie}), https=False)
    return found.prefix if found else None


def test_processes_with_the_same_service_key_accept_each_others_sessions() -> None:
    cookie = start(Sessions("secret"))
    assert find_prefix(Sessions("secret"), cookie) == "mrg_00000000"
    assert find_prefix(Sessions("another"), cookie) is None


def test_without_a_service_key_a_session_is_valid_in_its_process_only() -> None:
    here, there = Sessions(""), Sessions("")
    assert find_prefix(here, start(here)) == "mrg_00000000"
    assert find_prefix(there, start(here)) is None


def test_a_session_ends_after_its_lifetime() -> None:
    clock = Clock()
    sessions = Sessions("secret", clock)
    cookie = start(sessions)
    clock.now += LIFETIME_S - 1
    assert find_prefix(sessions, cookie) is not None
    clock.now += 1
    assert find_prefix(sessions, cookie) is None


@pytest.mark.parametrize("changed", ["mrg_11111111.1800000000", "mrg_00000000.1900000000", "mrg_00000000 1800000000."])
def test_neither_key_nor_time_of_a_session_can_be_changed(changed: str) -> None:
    sessions = Sessions("secret", Clock())
    signature = start(sessions).rpartition(".")[2]
    assert find_prefix(sessions, f"{COOKIE}={changed}.{signature}") is None


def test_a_form_token_belongs_to_one_session() -> None:
    clock = Clock()
    sessions = Sessions("secret", clock)
    first = start(sessions)
    clock.now += 1
    found = [sessions.find(Headers({"cookie": cookie}), https=False) for cookie in (first, start(sessions))]
    assert len({each.csrf for each in found if each}) == 2


LIMITS = Limits(uploads=2, training_exports=1, event_streams=1, page_streams=2)


class Held:
    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.inside = asyncio.Semaphore(0)
        self.fails = False

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        self.inside.release()
        await self.go.wait()
        if self.fails:
            raise RuntimeError
        await reached(scope, receive, send)


@pytest.mark.parametrize(
    ("method", "path", "setting", "most", "status"),
    [
        ("POST", "/v1/corpora", "uploads", 2, 429),
        ("POST", "/v1/datasets", "uploads", 2, 429),
        ("POST", "/v1/graphs", "uploads", 2, 429),
        ("POST", "/v1/rules/import", "uploads", 2, 429),
        ("GET", "/v1/jobs/a/events", "event_streams", 1, 429),
        ("GET", "/v1/datasets/a/training", "training_exports", 1, 429),
        ("GET", "/live/jobs/a", "page_streams", 2, 503),
        ("GET", "/live/now", "page_streams", 2, 503),
    ],
)
async def test_the_limit_holds_to_the_request(method: str, path: str, setting: str, most: int, status: int) -> None:
    held = Held()
    transport = httpx2.ASGITransport(app=ConcurrencyLimit(held, LIMITS))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        running = [asyncio.create_task(http.request(method, path)) for _ in range(most)]
        for _ in running:
            await held.inside.acquire()
        refused = await http.request(method, path)
        assert refused.status_code == status
        assert refused.headers["retry-after"] == "2"
        assert f"`limits.{setting}`" in refused.json()["detail"]
        held.go.set()
        assert [(await task).status_code for task in running] == [200] * most
        assert (await http.request(method, path)).status_code == 200


async def test_a_request_that_breaks_gives_its_place_back() -> None:
    held = Held()
    held.fails = True
    held.go.set()
    limited = ConcurrencyLimit(held, LIMITS)
    transport = httpx2.ASGITransport(app=limited, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        assert [(await http.post("/v1/corpora")).status_code for _ in range(5)] == [500] * 5


async def test_uploads_of_both_kinds_share_their_places() -> None:
    held = Held()
    transport = httpx2.ASGITransport(app=ConcurrencyLimit(held, LIMITS))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        running = [asyncio.create_task(http.post(path)) for path in ("/v1/corpora", "/v1/datasets")]
        for _ in running:
            await held.inside.acquire()
        assert (await http.post("/v1/corpora")).status_code == 429
        held.go.set()
        await asyncio.gather(*running)


# What every answer tells a browser.


def answering(**headers: str) -> ASGIApp:
    async def route(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await Response(headers={name.replace("_", "-"): value for name, value in headers.items()})(scope, receive, send)

    return route


async def test_nothing_is_guessed_framed_run_or_kept() -> None:
    headers = (await ask(SecurityHeaders)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


async def test_what_has_a_version_may_be_kept_and_asked_about() -> None:
    answer = await ask(lambda _: SecurityHeaders(answering(etag='"1"')))
    assert answer.headers["cache-control"] == "private, no-cache"


async def test_a_route_has_the_last_word() -> None:
    answer = await ask(lambda _: SecurityHeaders(answering(cache_control="max-age=1", content_security_policy="x")))
    assert (answer.headers["cache-control"], answer.headers["content-security-policy"]) == ("max-age=1", "x")


@pytest.mark.parametrize(("base", "told"), [("http://localhost", False), ("https://localhost", True)])
async def test_tls_is_insisted_on_only_where_there_is_tls(base: str, told: bool) -> None:
    assert ("strict-transport-security" in (await ask(SecurityHeaders, base=base)).headers) is told


@pytest.mark.parametrize("path", ["/healthz", "/nowhere", "/docs", "/openapi.json"])
async def test_the_whole_api_sends_them(path: str) -> None:
    headers = (await ask(lambda _: the_api(), path=path)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in headers["content-security-policy"]


async def test_there_is_no_cross_origin_access() -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    answer = await ask(lambda _: the_api(), "OPTIONS", "/v1/jobs", headers=asked)
    assert answer.status_code == 405
    assert not [name for name in answer.headers if name.startswith("access-control")]


async def test_the_documentation_is_one_page_without_a_script() -> None:
    answer = await ask(lambda _: the_api(), path="/docs")
    document = (await ask(lambda _: the_api(), path="/openapi.json")).json()
    assert "<script" not in answer.text
    assert "://" not in answer.text.split("</h1>")[0]
    assert all(path in answer.text for path in document["paths"])
    assert "style-src 'sha256-" in answer.headers["content-security-policy"]


# The keyring costs a query every few seconds, whoever asks how often.

DATABASE: Any = object()


class Table:
    def __init__(self) -> None:
        self.rows: dict[str, ValidKey] = {}
        self.reads = 0
        self.uses: list[int] = []
        self.now = 1000.0
        self.broken = False

    def issue(self) -> str:
        issued = shapes.issue_key()
        self.rows[issued.prefix] = ValidKey(len(self.rows), "alice", issued.prefix, issued.digest, ("read",))
        return issued.key

    async def valid(self, _database: object) -> dict[str, ValidKey]:
        self.reads += 1
        if self.broken:
            raise OperationalError("SELECT", {}, Exception("gone"))
        return dict(self.rows)

    async def used(self, _database: object, key: ValidKey) -> None:
        self.uses.append(key.id)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    double = Table()
    monkeypatch.setattr(keys, "load_valid_keys", double.valid)
    monkeypatch.setattr(keys, "record_use", double.used)
    return double


async def test_polling_costs_no_query(table: Table) -> None:
    key, keyring = table.issue(), Keyring(lambda: table.now)
    found = [await keyring.find(DATABASE, key) for _ in range(1000)]
    assert all(each is not None and each.name == "alice" for each in found)
    assert (table.reads, len(table.uses)) == (1, 1)


async def test_a_revoked_key_opens_nothing_after_five_seconds(table: Table) -> None:
    key, keyring = table.issue(), Keyring(lambda: table.now)
    assert await keyring.find(DATABASE, key)
    table.rows.clear()
    table.now += FRESH_S - 0.001
    assert await keyring.find(DATABASE, key)
    table.now += 0.001
    assert await keyring.find(DATABASE, key) is None


async def test_a_new_key_opens_at_once(table: Table) -> None:
    keyring = Keyring(lambda: table.now)
    assert await keyring.find(DATABASE, table.issue())
    table.now += UNKNOWN_S
    assert await keyring.find(DATABASE, table.issue())


async def test_strangers_cause_few_queries(table: Table) -> None:
    keyring = Keyring(lambda: table.now)
    for _ in range(1000):
        assert await keyring.find(DATABASE, shapes.issue_key().key) is None
        assert await keyring.find(DATABASE, "no key at all") is None
    assert table.reads == 1


async def test_the_prefix_alone_opens_nothing(table: Table) -> None:
    key = table.issue()
    forged = key[:-64] + "0" * 64
    assert await Keyring(lambda: table.now).find(DATABASE, forged) is None
    assert not table.uses


async def test_a_use_is_noted_once_a_minute(table: Table) -> None:
    key, keyring = table.issue(), Keyring(lambda: table.now)
    for seconds in (0.0, USED_S - 1, 1.0, 1.0):
        table.now += seconds
        await keyring.find(DATABASE, key)
    assert len(table.uses) == 2


async def test_without_database_nobody_is_let_in(table: Table) -> None:
    key, keyring = table.issue(), Keyring(lambda: table.now)
    assert await keyring.find(DATABASE, key)
    table.broken, table.now = True, table.now + FRESH_S
    with pytest.raises(Unavailable, match="database does not answer"):
        await keyring.find(DATABASE, key)
