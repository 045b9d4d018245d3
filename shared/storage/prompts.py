"""The prompts that models were sent, made anew: a request is stored without the texts of its documents."""

from collections.abc import Iterable

from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.requests import Request
from shared.rag.rendering import TemplateChanged, references, rendered
from shared.storage.library import LibraryCache
from shared.storage.stored import decoded

ROLES = ("judge", "write", "generate")
"""Roles whose calls have a prompt."""


async def prompts_of(connection: AsyncConnection, library: LibraryCache, requests: Iterable[bytes]) -> dict[bytes, str]:
    """By stored request of one of the `ROLES`; missing where its template is of another release."""
    read = {raw: request for raw in set(requests) if (request := decoded(raw, Request, "")[0]) is not None}
    named = {reference.doc for request in read.values() for reference in references(request)}
    documents = await library.documents(connection, named)
    found: dict[bytes, str] = {}
    for raw, request in read.items():
        try:
            found[raw] = rendered(request, documents)
        except (TemplateChanged, KeyError):
            continue
    return found
