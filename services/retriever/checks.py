"""What `mathrag doctor` asks the retriever: embedder, reranker, Elasticsearch and the indexes that lie there.

`GET /checks/NAME` looks with the settings of the process that serves; `python -m services.retriever.checks`, where none
does, at what the configuration names.
"""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
from anyio import run, to_thread
from sqlalchemy import text

from services.retriever.elasticsearch.backend import FILE
from services.retriever.elasticsearch.failures import MAJOR, URL
from services.retriever.elasticsearch.server import Server
from services.retriever.files import Unsound
from services.retriever.ports import Backend, Index
from shared import settings
from shared.checks import retrieval
from shared.checks.check import Check, NotReady, checked, correct
from shared.errors import NotFound
from shared.retrieval_settings import Retrieval
from shared.storage.database import Database

NAMES = ("embeddings", "reranker", "elasticsearch")
USED = text("""
    SELECT c.name, i.kind, i.path FROM corpora c JOIN indexes i ON i.id IN (c.dense_index, c.sparse_index)
    WHERE i.state = 'ready' ORDER BY c.name, i.kind""")


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """Where the indexes are that this retriever serves."""

    database: Database
    data_dir: Path
    backends: Mapping[str, Backend[Index]]
    """By kind."""


async def look(name: str, chosen: Retrieval, kept: Kept | None = None) -> Check:
    """One of `NAMES`; without `kept` no index is looked at.

    Raises:
        NotFound: there is nothing of this name.
    """
    match name:
        case "embeddings" | "reranker":
            found = to_thread.run_sync(retrieval.look, name, chosen)
        case "elasticsearch":
            found = _elasticsearch(chosen, kept)
        case _:
            raise NotFound(f"nothing here is called {name!r}; there are {', '.join(NAMES)}")
    return await checked(name, found, fix=correct(f"retrieval.{name}"))


async def _elasticsearch(chosen: Retrieval, kept: Kept | None) -> str:
    """The server is an Elasticsearch of our version, and holds every index that a corpus uses, whole."""
    once = chosen.elasticsearch.model_copy(update={"retries": 0, "timeout_s": retrieval.LOOK_S})
    major, minor = await to_thread.run_sync(lambda: Server(once).version)
    if major != MAJOR:
        said = f"Elasticsearch {major}.{minor} does not speak the language of version {MAJOR}"
        raise NotReady(said, fix=f"{URL} must name a server of version {MAJOR}")
    whole = 0 if kept is None else await _whole(kept)
    return f"Elasticsearch {major}.{minor}" + (f"; {whole} indexes of corpora, as they were built" if kept else "")


async def _whole(kept: Kept) -> int:
    async with kept.database.transaction() as connection:
        rows = (await connection.execute(USED)).all()
    there = [row for row in rows if (kept.data_dir / row.path / FILE).is_file()]
    for row in there:
        try:
            await to_thread.run_sync(kept.backends[row.kind].check, kept.data_dir / row.path)
        except Unsound as unsound:
            said = f"the {row.kind} index of corpus {row.name}: {unsound.message}"
            raise NotReady(said, fix=f"mathrag corpus index {shlex.quote(row.name)}") from unsound
    return len(there)


def main() -> None:
    """Print the checks of the names that are asked for, as JSON."""
    chosen = settings.load().retrieval

    async def every() -> list[Check]:
        return [await look(name, chosen) for name in sys.argv[1:]]

    sys.stdout.buffer.write(msgspec.json.encode(run(every)))


if __name__ == "__main__":
    main()
