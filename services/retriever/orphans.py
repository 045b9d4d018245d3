"""Find and delete indexes of this installation on the server that nothing uses any more.

They are left by builds whose process died, and by databases that were replaced.
"""

from pathlib import Path

from anyio import to_thread
from sqlalchemy import text

from services.retriever.builds import BuildQueue
from services.retriever.elasticsearch import ElasticsearchServer
from services.retriever.evaluation import FOLDER
from shared.storage.database import Database

SIGNATURES = text("SELECT encode(signature, 'hex') FROM indexes")


async def find(database: Database, data_dir: Path, server: ElasticsearchServer, queue: BuildQueue) -> list[str]:
    """List the indexes that nothing uses: no build, no row of `database` and no evaluation below `data_dir`.

    Raises:
        Unavailable: the server does not answer.
    """
    stored = await to_thread.run_sync(server.indexes)
    # In this order: a stored index is being built now, or was registered before the rows are read.
    building = queue.signatures
    used = building | await _list_used(database, data_dir)
    return [index for index in stored if _get_signature(index) not in used]


async def delete(database: Database, data_dir: Path, server: ElasticsearchServer, queue: BuildQueue) -> list[str]:
    """Delete the indexes that `find` names, and return their names; one that a build begins in the meantime is kept.

    Raises:
        Unavailable: the server does not answer.
    """
    deleted = []
    for index in await find(database, data_dir, server, queue):
        async with queue.take_turn(_get_signature(index), 0):
            if _get_signature(index) not in await _list_used(database, data_dir):
                await to_thread.run_sync(server.delete, index)
                deleted.append(index)
    return deleted


async def _list_used(database: Database, data_dir: Path) -> set[str]:
    """List the signatures of registered indexes and of those of evaluations."""
    async with database.transaction() as connection:
        signatures = set((await connection.execute(SIGNATURES)).scalars())
    return signatures | {folder.name for folder in (data_dir / FOLDER).glob("*")}


def _get_signature(index: str) -> str:
    return index.rpartition("-")[2]
