"""Indexes on the server that no row names: `python -m services.retriever.elasticsearch.orphans [--delete]`.

Builds that broke off with their process, and those of a database that is gone. What another installation keeps under
the same prefix looks the same from here, so each needs a prefix of its own. Nothing calls this by itself.
"""

import argparse

import anyio
from anyio import to_thread
from sqlalchemy import text

from services.retriever.elasticsearch.server import Server
from shared import settings
from shared.storage.database import Database

SIGNATURES = text("SELECT encode(signature, 'hex') FROM indexes")


async def orphans(database: Database, server: Server) -> list[str]:
    """Their names.

    Raises:
        Unavailable: the server does not answer.
    """
    held = await to_thread.run_sync(server.indexes)  # before the rows: what is registered meanwhile is none
    async with database.transaction() as connection:
        named = set((await connection.execute(SIGNATURES)).scalars())
    return [index for index in held if index.rpartition("-")[2] not in named]


async def remove(database: Database, server: Server) -> list[str]:
    """The same, and delete them. A build that is under way would be lost: have none."""
    found = await orphans(database, server)
    for index in found:
        await to_thread.run_sync(server.delete, index)
    return found


async def _run(*, delete: bool) -> None:
    loaded = settings.load()
    database = Database(loaded.database_url, pinned=False)
    server = Server(loaded.retrieval.elasticsearch)
    try:
        for index in await (remove if delete else orphans)(database, server):
            print(f"{'deleted' if delete else 'unnamed'}: {index}")  # noqa: T201 - what was asked for
    finally:
        await database.close()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--delete", action="store_true", help="remove them; without it they are only named")
    options = parser.parse_args()
    anyio.run(lambda: _run(delete=options.delete))


if __name__ == "__main__":
    main()
