"""Who gets a page: sessions of people who signed in, what their forms may do, and what strangers see."""

import hashlib
import hmac
import time

import httpx2
import pytest

from services.orchestrator.access import identity
from shared.shapes import Scope
from shared.storage import keys
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving
from tests.integration.pages.browsing import HTML, look, token

pytestmark = pytest.mark.anyio


async def signed_in(keyed: Api, database: Database, *scopes: Scope) -> str:
    key = await keys.create_key(database, "local", "-".join(scopes), set(scopes))
    reply = await keyed.http.post("/sign-in", data={"key": key, "next": "/jobs?state=running"})
    assert (reply.status_code, reply.headers["location"]) == (303, "/jobs?state=running")
    return key


async def test_a_stranger_is_sent_to_the_form_and_comes_back_where_he_wanted(keyed: Api) -> None:
    reply = await look(keyed, "/jobs?state=running")
    assert (reply.status_code, reply.headers["location"]) == (303, "/sign-in?next=/jobs%3Fstate%3Drunning")
    form = await look(keyed, reply.headers["location"])
    assert 'value="/jobs?state=running"' in form.text
    assert (await keyed.http.get("/jobs")).status_code == 401


async def test_a_session_opens_pages_and_what_they_link_to(keyed: Api, database: Database) -> None:
    key = await keys.create_key(database, "local", "reader", {Scope.READ})
    reply = await keyed.http.post("/sign-in", data={"key": f"  {key} "})
    cookie = reply.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert key not in cookie
    assert (await look(keyed, "/jobs")).status_code == 200
    assert (await keyed.http.get("/v1/jobs")).status_code == 200


async def test_a_session_does_not_write_through_the_api(keyed: Api, database: Database) -> None:
    await signed_in(keyed, database, Scope.OPERATE)
    assert (await keyed.http.post("/v1/gpus/cpu:0/drain")).status_code == 401


async def test_a_form_without_the_token_of_its_session_is_refused(keyed: Api, database: Database) -> None:
    await signed_in(keyed, database, Scope.READ)
    page = (await look(keyed, "/jobs")).text
    for wrong in ({}, {"csrf": "x"}, {"csrf": token(page)[:-1]}):
        reply = await keyed.http.post("/sign-out", data=wrong, headers=HTML)
        assert reply.status_code == 403, wrong
        assert "not sent by a page of your session" in reply.text
    assert (await keyed.http.post("/sign-out", data={"csrf": token(page)})).status_code == 303
    assert (await look(keyed, "/jobs")).status_code == 303


async def test_a_wrong_key_is_said_to_be_wrong(keyed: Api) -> None:
    reply = await keyed.http.post("/sign-in", data={"key": "mrg_guess"}, headers=HTML)
    assert reply.status_code == 401
    assert "not valid" in reply.text
    assert "mrg_guess" not in reply.text


async def test_wrong_keys_of_one_address_close_the_form_for_nobody(keyed: Api, database: Database) -> None:
    def connect(address: str) -> httpx2.AsyncClient:
        transport = httpx2.ASGITransport(app=keyed.app, client=(address, 1))
        return httpx2.AsyncClient(transport=transport, base_url="http://localhost")

    key = await keys.create_key(database, "local", "reader", {Scope.READ})
    async with connect("192.0.2.1") as guessing, connect("192.0.2.2") as other:
        statuses = {(await guessing.post("/sign-in", data={"key": "mrg_guess"})).status_code for _ in range(45)}
        assert statuses == {401, 429}
        assert (await other.post("/sign-in", data={"key": "mrg_typo"})).status_code == 401
        assert (await guessing.post("/sign-in", data={"key": key})).status_code == 303


@pytest.mark.parametrize(
    "headers", [{"origin": "https://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "same-site"}]
)
async def test_a_page_of_another_site_signs_nobody_in(keyed: Api, database: Database, headers: dict[str, str]) -> None:
    key = await keys.create_key(database, "local", "reader", {Scope.READ})
    reply = await keyed.http.post("/sign-in", data={"key": key}, headers=headers)
    assert reply.status_code == 403
    assert "set-cookie" not in reply.headers
    here = {"origin": "http://localhost", "sec-fetch-site": "same-origin"}
    assert (await keyed.http.post("/sign-in", data={"key": key}, headers=here)).status_code == 303


async def test_under_https_the_cookie_belongs_to_this_host_alone(keyed: Api, database: Database) -> None:
    key = await keys.create_key(database, "local", "reader", {Scope.READ})
    transport = httpx2.ASGITransport(app=keyed.app)
    async with httpx2.AsyncClient(transport=transport, base_url="https://mathrag.example") as http:
        reply = await http.post("/sign-in", data={"key": key})
        name, _, rest = reply.headers["set-cookie"].partition("=")
        assert name == "__Host-mathrag_session"
        assert {"Secure", "Path=/"} <= set(rest.split("; "))
        assert (await http.get("/jobs", headers=HTML)).status_code == 200
        assert await http.post("/sign-out", data={"csrf": token((await http.get("/jobs", headers=HTML)).text)})
        assert (await http.get("/jobs", headers=HTML)).status_code == 303
        # A page of a neighbouring host can set the name without the prefix, so it is not read here.
        planted = f"mathrag_session={rest.partition(';')[0]}"
        assert (await http.get("/jobs", headers={**HTML, "cookie": planted})).status_code == 303


@pytest.mark.parametrize(
    "path", ["//elsewhere.example", "/\\elsewhere.example", "https://elsewhere.example", "jobs", ""]
)
async def test_nobody_is_sent_to_another_site(keyed: Api, database: Database, path: str) -> None:
    key = await keys.create_key(database, "local", "reader", {Scope.READ})
    reply = await keyed.http.post("/sign-in", data={"key": key, "next": path})
    assert reply.headers["location"] == "/"


async def test_a_revoked_key_ends_its_sessions(keyed: Api, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.access.identity.FRESH_S", 0.0)
    await signed_in(keyed, database, Scope.READ)
    await keys.revoke_keys(database, "local", "read")
    assert (await look(keyed, "/jobs")).status_code == 303


@pytest.mark.parametrize(
    "forged",
    ["", "x", "a.b.c", "mrg_00000000.99999999999.00", "mrg_00000000.1.\u00e9", "." * 5000, "mrg_00000000.1e9.00"],
)
async def test_a_forged_cookie_opens_nothing(keyed: Api, forged: str) -> None:
    reply = await keyed.http.get("/jobs", headers=[*HTML.items(), (b"cookie", f"{identity.COOKIE}={forged}".encode())])
    assert reply.status_code == 303


async def test_no_session_can_be_made_of_what_the_database_holds(keyed: Api, database: Database) -> None:
    await keys.create_key(database, "local", "one", {Scope.OPERATE})
    [(prefix, stored)] = await scene.rows(database, "SELECT prefix, hash FROM api_keys")
    for seconds in (int(time.time()), int(time.time()) + 3600):
        signature = hmac.new(stored, f"session {prefix} {seconds}".encode(), hashlib.sha256).hexdigest()
        cookie = f"{identity.COOKIE}={prefix}.{seconds}.{signature}"
        assert (await look(keyed, "/jobs", cookie=cookie)).status_code == 303


async def test_a_page_from_elsewhere_gets_nothing_where_no_keys_are_asked_for(
    database: Database, redis_url: str
) -> None:
    await scene.furnish(database)
    async with serving(database, redis_url) as open_api:
        assert (await look(open_api, "/jobs", host="evil.example")).status_code == 403
        for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
            reply = await open_api.http.post("/sign-out", headers=headers)
            assert reply.status_code == 403, headers
        assert (await look(open_api, "/sign-in")).status_code == 303


async def test_what_goes_wrong_is_a_page_for_people_and_a_problem_for_programs(keyed: Api, database: Database) -> None:
    await signed_in(keyed, database, Scope.READ)
    for path, status in (("/nowhere", 404), ("/jobs?state=asleep", 422), ("/jobs?cursor=x", 400)):
        page, problem = await look(keyed, path), await keyed.http.get(path)
        assert (page.status_code, problem.status_code) == (status, status), path
        assert page.headers["content-type"].startswith("text/html")
        assert "<h1>" in page.text
        assert problem.headers["content-type"] == "application/problem+json"


async def test_every_page_has_a_policy_and_is_kept_by_nobody(keyed: Api, database: Database) -> None:
    await signed_in(keyed, database, Scope.READ)
    for reply in (await look(keyed, "/jobs"), await look(keyed, "/nowhere"), await look(keyed, "/sign-in")):
        policy = reply.headers["content-security-policy"]
        assert "unsafe" not in policy
        assert {"default-src 'none'", "form-action 'self'", "frame-ancestors 'none'"} <= set(policy.split("; "))
        assert reply.headers["cache-control"] == "no-store"
        assert "<script>" not in reply.text
        assert " style=" not in reply.text


async def test_assets_are_for_everybody_and_for_ever(keyed: Api) -> None:
    page = await look(keyed, "/sign-in")
    for address in (part.partition('"')[0] for part in page.text.split('"/assets/')[1:]):
        reply = await keyed.http.get(f"/assets/{address}")
        assert reply.status_code == 200, address
        assert "immutable" in reply.headers["cache-control"]
    for wrong in ("x/..%2f..%2fpyproject.toml", "x/htmx-4.0.1/LICENSE", "x", "x/"):
        assert (await keyed.http.get(f"/assets/{wrong}")).status_code == 404, wrong


async def test_a_browser_may_say_of_a_form_that_it_comes_from_here(keyed: Api) -> None:
    page = await look(keyed, "/sign-in")
    assert page.headers["referrer-policy"] == "same-origin"
    assert '<meta name="referrer" content="same-origin">' in page.text
