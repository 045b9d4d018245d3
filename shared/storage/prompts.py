"""Render again the prompts that models were sent; stored requests do not hold their documents' texts."""

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.prompts import text_of
from shared.contracts.requests import Request
from shared.rag.rendering import TemplateChanged, list_references, render_request
from shared.storage.decoding import try_decode
from shared.storage.library import LibraryCache

ROLES = ("judge", "write", "generate")
"""Roles whose calls have prompts."""


async def render_prompts(
    connection: AsyncConnection, library: LibraryCache, requests: Iterable[bytes]
) -> dict[bytes, str]:
    """Render the prompts by stored request; requests with a template of another release are left out."""
    read = {raw: request for raw in set(requests) if (request := try_decode(raw, Request, "")[0]) is not None}
    named = {reference.doc for request in read.values() for reference in list_references(request)}
    documents = await library.documents(connection, named)
    found: dict[bytes, str] = {}
    for raw, request in read.items():
        try:
            found[raw] = text_of(render_request(request, documents))
        except (TemplateChanged, KeyError):
            continue
    return found
