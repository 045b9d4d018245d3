"""Write graphs from the database to files, one per part."""

from pathlib import Path
from typing import IO

from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage import graphs


async def write_graph(connection: AsyncConnection, graph: int, folder: Path) -> None:
    """Write the graph with this row id into `folder`, with only a few blocks in memory at a time."""
    files: dict[graphs.Part, IO[bytes]] = {}
    try:
        async for block in graphs.stream_blocks(connection, graph):
            if block.part not in files:
                files[block.part] = (folder / block.part).open("wb")
            files[block.part].write(block.content)
    finally:
        for file in files.values():
            file.close()
