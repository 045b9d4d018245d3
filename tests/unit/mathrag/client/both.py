"""One call by either client, and what it says."""

from collections.abc import Callable
from typing import Any

from mathrag.client.async_client import AsyncClient
from mathrag.client.client import Client
from mathrag.client.errors import Failed

ADDRESS = "http://127.0.0.1:1"
By = Callable[[Any], Any]


async def by_both(call: By, **options: Any) -> list[Any]:
    """What `call` returns of either client, or the failure that it raises."""
    found: list[Any] = []
    with Client(ADDRESS, **options) as client:
        try:
            found.append(call(client))
        except Failed as failed:
            found.append(failed)
    async with AsyncClient(ADDRESS, **options) as other:
        try:
            found.append(await call(other))
        except Failed as failed:
            found.append(failed)
    return found
