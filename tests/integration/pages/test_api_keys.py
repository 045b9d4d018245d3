"""`/keys`: operators list, create, rotate and revoke API keys; a key is shown once and stands nowhere else."""

import asyncio
import html
import logging
import re
from unittest.mock import AsyncMock

import httpx2
import pytest

from services.orchestrator.access.identity import UNKNOWN_S
from shared.shapes import Scope, prefix_of
from shared.storage import keys
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api
from tests.integration.pages.browsing import look, rows, send, sign_in, text, token

pytestmark = pytest.mark.anyio
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


def said(page: str) -> dict[str, str]:
    found = re.findall(r'<span class="field-error" id="([^"]*)-error">(.*?)</span>', page)
    return {field: html.unescape(re.sub("</?code>", "`", words)) for field, words in found}


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


async def test_all_keys_are_listed_with_their_states(keyed: Api, database: Database) -> None:
    await sign_in(keyed, database, Scope.OPERATE)
    await submit(keyed, "/keys", ALICE)
    await submit(keyed, "/keys", {"name": "bob", "scope": ["read"]})
    await submit(keyed, "/keys", {"name": "carol", "scope": ["read"], "lifetime": "0m"})
    await keys.revoke_keys(database, "local", "bob")
    alice, bob, carol, own = rows(await text(keyed, "/keys"))
    assert re.match(r"alice mrg_\w{8} read, submit valid \d{4}-.* UTC \d{4}-.* UTC never Rotate", alice)
    assert re.match(r"bob mrg_\w{8} read revoked .* UTC never never$", bob)
    assert re.match(r"carol mrg_\w{8} read expired .* UTC .* UTC never$", carol)
    assert own.startswith("operate your own mrg_")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"name": "alice", "scope": ["read"]}, {"name": "a valid key has this name"}),
        ({"name": "bob"}, {"scope": "opens nothing"}),
        ({"name": "bob", "scope": ["read"], "lifetime": "soon"}, {"lifetime": "'soon' is not a duration"}),
        ({"name": "b b", "scope": ["read"], "lifetime": "90"}, {"name": "not a valid name", "lifetime": "such as 90d"}),
        ({"name": "alice", "lifetime": "1y"}, {"name": "a valid", "scope": "opens", "lifetime": "such as 90d"}),
        ({"name": "", "scope": ["submit", "operate"]}, {"name": "not a valid name"}),
        ({"name": "mrg_1", "scope": ["submit"]}, {"name": "looks like a key"}),
        ({"name": '"><b>', "scope": ["read"]}, {"name": "not a valid name"}),
    ],
)
async def test_all_mistakes_stand_beside_what_was_typed(
    api: Api, database: Database, fields: dict[str, str | list[str]], wrong: dict[str, str]
) -> None:
    await submit(api, "/keys", {"name": "alice", "scope": ["read"]})
    reply = await submit(api, "/keys", fields)
    assert reply.status_code == 422
    found = said(reply.text)
    assert found.keys() == wrong.keys()
    assert all(words in found[field] for field, words in wrong.items())
    typed = {
        name: html.unescape(value) for name, value in re.findall(r'<input name="(\w+)"[^>]*? value="(.*?)"', reply.text)
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
    assert "is not a duration" in said(reply.text)["grace"]
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
    assert "asks for no keys" in page
    assert "There is no key yet" in page
    assert 'href="/keys"' in page
    key = key_on((await submit(api, "/keys", ALICE)).text)
    assert "asks for no keys" in await text(api, "/keys")
    [found] = await keys.list_keys(database)
    assert found.prefix == prefix_of(key)
    assert await scene.rows(database, "SELECT actor, action FROM operations") == [("local", "key create")]
    evil = {"origin": "https://evil.example"}
    assert (await api.http.post("/keys", data={"name": "bob", "scope": "read"}, headers=evil)).status_code == 403


async def test_where_keys_are_asked_for_nothing_says_that_they_are_not(keyed: Api, database: Database) -> None:
    await sign_in(keyed, database, Scope.OPERATE)
    assert "asks for no keys" not in await text(keyed, "/keys")
