"""The asynchronous client: `await AsyncClient().jobs.get("first")`."""

from typing import TYPE_CHECKING

from mathrag.client.async_connection import AsyncConnection
from mathrag.client.client import OperationGroups

if TYPE_CHECKING:
    from mathrag.client.groups.jobs import AsyncPipeline


class AsyncClient(AsyncConnection, OperationGroups[AsyncConnection]):
    """Connection to one server, with every operation of its API; each event loop needs a client of its own."""

    def pipeline(self, name: str) -> "AsyncPipeline":
        """Return a pipeline by its name, to run it: `await client.pipeline("crag").run("math-500", corpus="math")`."""
        from mathrag.client.groups.jobs import AsyncPipeline

        return AsyncPipeline(self, name)
