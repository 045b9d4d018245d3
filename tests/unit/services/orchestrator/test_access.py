from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from fastapi import APIRouter, Depends, FastAPI
from fastapi.routing import iter_route_contexts
from starlette.datastructures import Headers
from starlette.responses import Response

from services.orchestrator.access.identity import (
    COOKIE,
    LIFETIME_S,
    Actor,
    Identity,
    Sessions,
    authorise,
    get_declared_scope,
)
from services.orchestrator.api import routes
from services.orchestrator.api.routes import route
from services.orchestrator.app import build
from shared.access.filters import OPENAI
from shared.settings import Settings
from shared.shapes import Scope
from shared.storage.keys import ValidKey
from tests.api_document import api_document
from tests.unit.asgi import ask

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
    app.state.deps = SimpleNamespace(admission=None)
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
        for each in iter_route_contexts(build(Settings()).routes)
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


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_a_key_that_may_not_is_told_which_scope_it_lacks() -> None:
    problem = (await asked([READ], "POST", "/v1/jobs")).json()
    assert problem["type"] == "urn:mathrag:forbidden"
    assert "'submit'" in problem["detail"]
    assert problem["hint"] == "mathrag key create NAME --scope submit"


@pytest.mark.anyio
@pytest.mark.parametrize("key", [None, "unknown"])
@pytest.mark.parametrize("path", ["/v1/jobs", "/nowhere"])
async def test_without_a_valid_key_nothing_is_told(key: str | None, path: str) -> None:
    reply = await asked([READ], "GET", path, key)
    assert reply.status_code == 401
    assert reply.headers["www-authenticate"].startswith("Bearer")
    assert reply.json()["type"] == "urn:mathrag:unauthorized"


@pytest.mark.anyio
async def test_healthz_needs_no_key() -> None:
    assert (await asked([], "GET", "/healthz", None)).status_code == 200


@pytest.mark.anyio
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
