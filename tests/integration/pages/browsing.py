"""What a browser sends."""

import asyncio
import html
import re
from collections.abc import Mapping

import httpx2

from services.orchestrator.access.keyring import UNKNOWN_S
from shared.contracts.api_keys import Scope
from shared.storage import keys
from shared.storage.database import Database
from tests.integration.api import Api

HTML = {"accept": "text/html"}


async def look(api: Api, path: str, **headers: str) -> httpx2.Response:
    """What a browser gets."""
    return await api.http.get(path, headers={**HTML, **headers})


async def text(api: Api, path: str) -> str:
    """The page at `path`, which there must be."""
    reply = await look(api, path)
    assert reply.status_code == 200, reply.text
    return reply.text


async def send(api: Api, path: str, fields: Mapping[str, str]) -> httpx2.Response:
    """A form."""
    return await api.http.post(path, data=dict(fields), headers=HTML)


def token(page: str) -> str:
    """The one that the page's forms send back."""
    return page.partition('name="csrf" value="')[2].partition('"')[0]


def rows(page: str) -> list[str]:
    """The rows that the keys go through, as their words."""
    drawn = re.findall(r"<tr data-row.*?</tr>", page, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", row).split()) for row in drawn]


async def sign_in(api: Api, database: Database, *scopes: Scope) -> str:
    """Sign in with a new key of these scopes; the session's cookie stays in the client, the key is returned."""
    key = await keys.create(database, "local", "-".join(scopes), set(scopes))
    await asyncio.sleep(UNKNOWN_S)  # so often keys that are not known yet are looked for
    reply = await api.http.post("/sign-in", data={"key": key})
    assert reply.status_code == 303, reply.text
    return key


def next_page(page: str) -> str | None:
    """Where the page's link to the next one leads."""
    found = re.search(r'<a href="([^"]*)" rel="next"', page)
    return html.unescape(found[1]) if found else None
