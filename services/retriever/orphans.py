"""Find and delete indexes of this installation on the server that nothing uses any more.

They are left by builds whose process died, and by databases that were replaced.
"""

from pathlib import Path

from anyio import to_thread
from sqlalchemy import text

from services.retriever.elasticsearch.server import ElasticsearchServer
from services.retriever.evaluation.searcher import FOLDER
from shared.storage.database import Database

SIGNATURES = text("SELECT encode(signature, 'hex') FROM indexes")


async def find(database: Database, data_dir: Path, server: ElasticsearchServer) -> list[str]:
    """List the indexes that neither a row of `database` nor an evaluation below `data_dir` uses.

    An index that is being built is among them.

    Raises:
        Unavailable: the server does not answer.
    """
    stored = await to_thread.run_sync(server.indexes)  # before the rows: what is registered meanwhile is no orphan
    async with database.transaction() as connection:
        signatures = set((await connection.execute(SIGNATURES)).scalars())
    signatures |= {folder.name for folder in (data_dir / FOLDER).glob("*")}
    return [index for index in stored if index.rpartition("-")[2] not in signatures]


async def delete(database: Database, data_dir: Path, server: ElasticsearchServer) -> list[str]:
    """Delete the indexes that `find` names, and return their names.

    Raises:
        Unavailable: the server does not answer.
    """
    found = await find(database, data_dir, server)
    for index in found:
        await to_thread.run_sync(server.delete, index)
    return found
