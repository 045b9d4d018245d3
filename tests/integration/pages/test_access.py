import asyncio
import hashlib
import hmac
import html
import logging
import re
import time
from unittest.mock import AsyncMock

import httpx2
import pytest

from services.orchestrator.access import identity
from services.orchestrator.access.identity import UNKNOWN_S
from shared.shapes import Scope, prefix_of
from shared.storage import keys
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api
from tests.integration.pages.browsing import HTML, field_errors, look, rows, send, sign_in, text, token

# Who gets a page: sessions of people who signed in, what their forms may do, and what strangers see.


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


async def test_a_forged_cookie_opens_nothing(keyed: Api, subtests: pytest.Subtests) -> None:
    for forged in (
        "",
        "x",
        "a.b.c",
        "mrg_00000000.99999999999.00",
        "mrg_00000000.1.\u00e9",
        "." * 5000,
        "mrg_00000000.1e9.00",
    ):
        with subtests.test(forged=forged):
            reply = await keyed.http.get(
                "/jobs", headers=[*HTML.items(), (b"cookie", f"{identity.COOKIE}={forged}".encode())]
            )
            assert reply.status_code == 303


async def test_no_session_can_be_made_of_what_the_database_holds(keyed: Api, database: Database) -> None:
    await keys.create_key(database, "local", "one", {Scope.OPERATE})
    [(prefix, stored)] = await scene.rows(database, "SELECT prefix, hash FROM api_keys")
    for seconds in (int(time.time()), int(time.time()) + 3600):
        signature = hmac.new(stored, f"session {prefix} {seconds}".encode(), hashlib.sha256).hexdigest()
        cookie = f"{identity.COOKIE}={prefix}.{seconds}.{signature}"
        assert (await look(keyed, "/jobs", cookie=cookie)).status_code == 303


async def test_a_page_from_elsewhere_gets_nothing_where_no_keys_are_asked_for(api: Api) -> None:
    assert (await look(api, "/jobs", host="evil.example")).status_code == 403
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        reply = await api.http.post("/sign-out", headers=headers)
        assert reply.status_code == 403, headers
    assert (await look(api, "/sign-in")).status_code == 303


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


# `/keys`: operators list, create, rotate and revoke API keys; a key is shown once and stands nowhere else.

ALICE: dict[str, str | list[str]] = {"name": "alice", "scope": ["read", "submit"], "lifetime": "90d"}


async def submit(api: Api, path: str, fields: dict[str, str | list[str]], **headers: str) -> httpx2.Response:
    page = await text(api, "/keys")
    return await api.http.post(
        path, data={"csrf": token(page), **fields}, headers={"accept": "text/html", **headers}
    )  # fmt: skip


def key_on(page: str) -> str:
    found = re.findall(r"mrg_[0-9a-f]{8}_[0-9a-f]{64}", page)
    assert len(found) == 1
    return str(found[0])


async def opens(api: Api, key: str) -> int:
    await asyncio.sleep(UNKNOWN_S)
    transport = httpx2.ASGITransport(app=api.app)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as program:
        return (await program.get("/v1/jobs", headers={"authorization": f"Bearer {key}"})).status_code


async def journal(database: Database) -> list[tuple[object, ...]]:
    return await scene.rows(
        database, "SELECT actor, action, target FROM operations WHERE actor <> 'local' ORDER BY id"
    )  # fmt: skip


@pytest.mark.parametrize("scopes", [(Scope.READ,), (Scope.READ, Scope.SUBMIT)])
async def test_only_operators_have_the_page(keyed: Api, database: Database, scopes: tuple[Scope, ...]) -> None:
    await sign_in(keyed, database, *scopes)
    page = await text(keyed, "/jobs")
    assert 'href="/keys"' not in page
    before = await keys.list_keys(database)
    assert (await look(keyed, "/keys")).status_code == 403
    sent = {"csrf": token(page), "name": "more", "scope": "operate", "grace": "1h"}
    for path in ("/keys", f"/keys/{before[0].name}/rotate", f"/keys/{before[0].prefix}/revoke"):
        assert (await send(keyed, path, sent)).status_code == 403, path
    assert [key.state for key in await keys.list_keys(database)] == ["valid"]


async def test_strangers_see_no_link_to_it(keyed: Api) -> None:
    assert 'href="/keys"' not in await text(keyed, "/sign-in")
    assert (await look(keyed, "/keys")).headers["location"] == "/sign-in?next=/keys"


async def test_a_created_key_works_and_is_shown_once(
    keyed: Api, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await sign_in(keyed, database, Scope.OPERATE)
    assert 'href="/keys"' in await text(keyed, "/jobs")
    with caplog.at_level(logging.DEBUG):
        reply = await submit(keyed, "/keys", ALICE)
    assert reply.status_code == 200
    key = key_on(reply.text)
    assert "cannot be shown again" in reply.text
    assert reply.headers["cache-control"] == "no-store"
    assert await opens(keyed, key) == 200
    secret = key.rpartition("_")[2]
    assert secret not in await text(keyed, "/keys")
    assert secret not in caplog.text
    assert secret not in str(await scene.rows(database, "SELECT * FROM operations"))
    assert await journal(database) == [("operate", "key create", "alice")]
    made = (await keys.list_keys(database))[0]
    assert (made.name, made.scopes, made.prefix) == ("alice", ["read", "submit"], prefix_of(key))
    assert made.expires_at is not None
    assert (made.expires_at - made.created_at).days == 90


async def test_weight_and_project_are_stored_and_shown_with_the_keys_use(api: Api, database: Database) -> None:
    await submit(api, "/keys", {**ALICE, "weight": "3", "project": "thesis"})
    await submit(api, "/keys", {"name": "bob", "scope": ["read"]})
    await scene.submit_job(database, "closed-book", submitted_by="alice")
    shown = " ".join(re.sub(r"<[^>]+>", " ", await text(api, "/keys")).split())
    assert "no limit of samples, no limit of GPU time, no limit of uploads" in shown
    assert "alice 3 thesis 5 0 0.0 0.0 bob 1 none 0 0 0.0 0.0" in shown


async def test_all_keys_are_listed_with_their_states(keyed: Api, database: Database) -> None:
    await sign_in(keyed, database, Scope.OPERATE)
    await submit(keyed, "/keys", ALICE)
    await submit(keyed, "/keys", {"name": "bob", "scope": ["read"]})
    await submit(keyed, "/keys", {"name": "carol", "scope": ["read"], "lifetime": "0m"})
    await keys.revoke_keys(database, "local", "bob")
    alice, bob, carol, own = rows(await text(keyed, "/keys"))
    assert re.match(r"alice mrg_\w{8} read, submit valid just now \d{4}-\d\d-\d\d never Rotate", alice)
    assert re.match(r"bob mrg_\w{8} read revoked just now never never$", bob)
    assert re.match(r"carol mrg_\w{8} read expired just now just now never$", carol)
    assert own.startswith("operate your own mrg_")


async def test_all_mistakes_stand_beside_what_was_typed(
    api: Api, database: Database, subtests: pytest.Subtests
) -> None:
    await submit(api, "/keys", {"name": "alice", "scope": ["read"]})
    for fields, wrong in (
        ({"name": "alice", "scope": ["read"]}, {"name": "a valid key has this name"}),
        ({"name": "bob"}, {"scope": "needs at least one scope"}),
        ({"name": "bob", "scope": ["read"], "lifetime": "soon"}, {"lifetime": "'soon' is not a duration"}),
        ({"name": "b b", "scope": ["read"], "lifetime": "90"}, {"name": "not a valid name", "lifetime": "such as 90d"}),
        (
            {"name": "alice", "lifetime": "1y"},
            {"name": "a valid", "scope": "at least one scope", "lifetime": "such as 90d"},
        ),
        ({"name": "", "scope": ["submit", "operate"]}, {"name": "not a valid name"}),
        ({"name": "mrg_1", "scope": ["submit"]}, {"name": "looks like a key"}),
        ({"name": '"><b>', "scope": ["read"]}, {"name": "not a valid name"}),
        (
            {"name": "bob", "scope": ["read"], "weight": "101", "project": "a b"},
            {"weight": "101 is not between 1 and 100", "project": "not a valid name"},
        ),
        ({"name": "bob", "scope": ["read"], "weight": "-1"}, {"weight": "'-1' is not a whole number"}),
    ):
        with subtests.test(fields=fields):
            reply = await submit(api, "/keys", fields)
            assert reply.status_code == 422
            found = field_errors(reply.text)
            assert found.keys() == wrong.keys()
            assert all(words in found[field] for field, words in wrong.items())
            typed = {
                name: html.unescape(value)
                for name, value in re.findall(r'<input name="(\w+)"[^>]*? value="(.*?)"', reply.text)
            }
            assert (typed["name"], typed["lifetime"]) == (fields["name"], fields.get("lifetime", ""))
            assert re.findall(r'value="(\w+)" checked', reply.text) == fields.get("scope", [])
            assert len(await keys.list_keys(database)) == 1


async def test_a_form_that_is_refused_lists_the_keys_once(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    csrf = token(await text(api, "/keys"))
    listed = AsyncMock(side_effect=keys.list_keys)
    monkeypatch.setattr(keys, "list_keys", listed)
    reply = await api.http.post("/keys", data={"csrf": csrf, "name": "alice"}, headers={"accept": "text/html"})
    assert reply.status_code == 422
    assert listed.await_count == 1


async def test_two_forms_for_one_name_at_once_make_one_key(api: Api, database: Database) -> None:
    replies = await asyncio.gather(*(submit(api, "/keys", ALICE) for _ in range(3)))
    assert sorted(reply.status_code for reply in replies) == [200, 422, 422]
    assert len(await keys.list_keys(database)) == 1


async def test_a_rotation_shows_the_new_key_and_keeps_the_old_one_for_the_grace(keyed: Api, database: Database) -> None:
    await sign_in(keyed, database, Scope.OPERATE)
    old = key_on((await submit(keyed, "/keys", ALICE)).text)
    reply = await submit(keyed, "/keys/alice/rotate", {"grace": "12h"})
    new = key_on(reply.text)
    assert reply.headers["cache-control"] == "no-store"
    assert new != old
    assert [await opens(keyed, key) for key in (old, new)] == [200, 200]
    first, second = (await keys.list_keys(database))[:2]
    assert (first.prefix, second.prefix) == (prefix_of(old), prefix_of(new))
    assert first.expires_at is not None
    assert (first.expires_at - second.created_at).total_seconds() == 12 * 3600
    assert new not in await text(keyed, "/keys")
    assert (await journal(database))[-1] == ("operate", "key rotate", "alice")
    # Only the newest can be replaced; each can be revoked.
    assert ["Rotate alice" in row for row in rows(await text(keyed, "/keys"))[:2]] == [False, True]


async def test_a_rotation_without_grace_ends_the_old_key(
    keyed: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.orchestrator.access.identity.FRESH_S", 0.0)
    await sign_in(keyed, database, Scope.OPERATE)
    old = key_on((await submit(keyed, "/keys", ALICE)).text)
    new = key_on((await submit(keyed, "/keys/alice/rotate", {"grace": "0m"})).text)
    assert [await opens(keyed, key) for key in (old, new)] == [401, 200]


@pytest.mark.parametrize("grace", ["", "soon", '"><b>'])
async def test_a_grace_that_is_no_duration_rotates_nothing(api: Api, database: Database, grace: str) -> None:
    await submit(api, "/keys", ALICE)
    reply = await submit(api, "/keys/alice/rotate", {"grace": grace})
    assert reply.status_code == 422
    assert "is not a duration" in field_errors(reply.text)["grace"]
    assert f'name="grace" value="{html.escape(grace).replace("&quot;", "&#34;")}"' in reply.text
    assert reply.text.count('<details class="inline" open>') == 1
    assert len(await keys.list_keys(database)) == 1


async def test_a_revoked_key_opens_nothing(keyed: Api, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.orchestrator.access.identity.FRESH_S", 0.0)
    await sign_in(keyed, database, Scope.OPERATE)
    key = key_on((await submit(keyed, "/keys", ALICE)).text)
    path = f"/keys/{prefix_of(key)}/revoke"
    reply = await submit(keyed, path, {})
    assert (reply.status_code, reply.headers["location"]) == (303, "/keys")
    assert await opens(keyed, key) == 401
    assert rows(await text(keyed, "/keys"))[0].endswith("never")  # without a button
    assert (await journal(database))[-1] == ("operate", "key revoke", "alice")
    assert (await submit(keyed, path, {})).status_code == 404
    assert (await submit(keyed, "/keys/alice/rotate", {"grace": "1h"})).status_code == 404


async def test_a_revocation_of_one_key_leaves_the_other_of_its_name(keyed: Api, database: Database) -> None:
    await sign_in(keyed, database, Scope.OPERATE)
    old = key_on((await submit(keyed, "/keys", ALICE)).text)
    await submit(keyed, "/keys/alice/rotate", {"grace": "1h"})
    await submit(keyed, f"/keys/{prefix_of(old)}/revoke", {})
    assert [key.state for key in (await keys.list_keys(database))[:2]] == ["revoked", "valid"]


async def test_an_operator_is_warned_of_his_own_key_and_may_revoke_it(
    keyed: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("services.orchestrator.access.identity.FRESH_S", 0.0)
    own = await sign_in(keyed, database, Scope.OPERATE)
    await submit(keyed, "/keys", ALICE)
    await submit(keyed, "/keys/operate/rotate", {"grace": "1h"})
    alice, old, new = rows(await text(keyed, "/keys"))
    warning = "You are signed in with this key : your session ends with it"
    assert [warning in row for row in (alice, old, new)] == [False, True, False]
    assert (await submit(keyed, f"/keys/{prefix_of(own)}/revoke", {})).status_code == 303
    assert (await look(keyed, "/keys")).headers["location"] == "/sign-in?next=/keys"


@pytest.mark.parametrize(
    ("fields", "headers"),
    [
        ({"csrf": ""}, {}),
        ({"csrf": "x"}, {}),
        ({}, {"origin": "https://evil.example"}),
        ({}, {"origin": "null"}),
        ({}, {"sec-fetch-site": "cross-site"}),
    ],
)
async def test_a_form_of_another_page_changes_nothing(
    keyed: Api, database: Database, fields: dict[str, str], headers: dict[str, str]
) -> None:
    await sign_in(keyed, database, Scope.OPERATE)
    key = key_on((await submit(keyed, "/keys", ALICE)).text)
    before = await keys.list_keys(database)
    for path in ("/keys", "/keys/alice/rotate", f"/keys/{prefix_of(key)}/revoke"):
        sent = {"name": "bob", "scope": ["operate"], "grace": "1h", **fields}
        assert (await submit(keyed, path, sent, **headers)).status_code == 403, path
    after = await keys.list_keys(database)
    assert [(each.prefix, each.state, each.expires_at) for each in after] == [
        (each.prefix, each.state, each.expires_at) for each in before
    ]


async def test_where_no_keys_are_asked_for_the_page_says_so_and_works(api: Api, database: Database) -> None:
    page = await text(api, "/keys")
    assert "does not require API keys" in page
    assert "No key exists yet" in page
    assert 'href="/keys"' in page
    key = key_on((await submit(api, "/keys", ALICE)).text)
    assert "does not require API keys" in await text(api, "/keys")
    [found] = await keys.list_keys(database)
    assert found.prefix == prefix_of(key)
    assert await scene.rows(database, "SELECT actor, action FROM operations") == [("local", "key create")]
    evil = {"origin": "https://evil.example"}
    assert (await api.http.post("/keys", data={"name": "bob", "scope": "read"}, headers=evil)).status_code == 403


async def test_where_keys_are_asked_for_nothing_says_that_they_are_not(keyed: Api, database: Database) -> None:
    await sign_in(keyed, database, Scope.OPERATE)
    assert "does not require API keys" not in await text(keyed, "/keys")
