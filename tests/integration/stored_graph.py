"""What the database holds of a graph, as a process that mines it sees it."""

from pathlib import Path

from services.judge import graphs
from shared.rules.graph import Graph
from shared.storage.database import Database


async def loaded(database: Database, graph: int, folder: Path) -> Graph:
    """The graph with this row id, written into `folder` and mapped from there."""
    async with database.transaction() as connection:
        await graphs.write_graph(connection, graph, folder)
    found = graphs.map_graph(folder)
    return found._replace(entities=list(found.entities), relations=list(found.relations))
