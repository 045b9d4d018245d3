"""The synchronous client: `Client().jobs.get("first")`."""

from typing import TYPE_CHECKING

from mathrag.client.connection import Connection
from mathrag.client.operation_groups import OperationGroups

if TYPE_CHECKING:
    from mathrag.client.pipeline import Pipeline


class Client(Connection, OperationGroups[Connection]):
    """Connection to one server, with every operation of its API."""

    def pipeline(self, name: str) -> "Pipeline":
        """Return a pipeline by its name, to run it: `client.pipeline("crag").run("math-500", corpus="math")`."""
        from mathrag.client.pipeline import Pipeline

        return Pipeline(self, name)
