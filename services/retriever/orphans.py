"""Indexes of this installation on the server that nothing names any more.

A build that broke off with its process leaves one, and so does a database that was replaced.
"""

from pathlib import Path

from anyio import to_thread
from sqlalchemy import text

from services.retriever.elasticsearch.server import Server
from services.retriever.evaluation.searching import FOLDER
from shared.storage.database import Database

SIGNATURES = text("SELECT encode(signature, 'hex') FROM indexes")


async def find(database: Database, data_dir: Path, server: Server) -> list[str]:
    """Names of the indexes that neither a row of `database` nor an evaluation below `data_dir` uses.

    An index that is being built is one of them.

    Raises:
        Unavailable: the server does not answer.
    """
    held = await to_thread.run_sync(server.indexes)  # before the rows: what is registered meanwhile is no orphan
    async with database.transaction() as connection:
        named = set((await connection.execute(SIGNATURES)).scalars())
    named |= {folder.name for folder in (data_dir / FOLDER).glob("*")}
    return [index for index in held if index.rpartition("-")[2] not in named]


async def delete(database: Database, data_dir: Path, server: Server) -> list[str]:
    """Delete the indexes that `find` names, and return their names.

    Raises:
        Unavailable: the server does not answer.
    """
    found = await find(database, data_dir, server)
    for index in found:
        await to_thread.run_sync(server.delete, index)
    return found
