"""Check the parts of retrieval for `mathrag doctor`: embedder, reranker, Elasticsearch and the indexes on it.

`GET /checks/NAME` checks with the settings of the running retriever. `python -m services.retriever.checks` checks what
the configuration names, for an installation where no retriever runs.
"""

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec
from anyio import run, to_thread
from sqlalchemy import text

from mathrag.check import Check, NotReady, advise_setting
from mathrag.errors import NotFound
from services.retriever.elasticsearch import FILE, MAJOR, MAKE_KEY, URL, ElasticsearchServer
from services.retriever.index import Backend, SearchIndex, UnsoundIndex
from shared import model_checks, settings
from shared.model_checks import run_check
from shared.settings import Retrieval
from shared.storage.database import Database

NAMES = ("embeddings", "reranker", "elasticsearch")
USED = text("""
    SELECT c.name, i.kind, i.path FROM corpora c JOIN indexes i ON i.id IN (c.dense_index, c.sparse_index)
    WHERE i.state = 'ready' ORDER BY c.name, i.kind""")


class ServedIndexes(msgspec.Struct, frozen=True, kw_only=True):
    """Tells where the indexes lie that this retriever serves."""

    database: Database
    data_dir: Path
    backends: Mapping[str, Backend[SearchIndex]]
    """The back end of each kind, "dense" and "sparse"."""


async def check_part(name: str, chosen: Retrieval, kept: ServedIndexes | None = None) -> Check:
    """Check one of `NAMES`; without `kept` no index is checked.

    Raises:
        NotFound: no check has this name.
    """
    match name:
        case "embeddings" | "reranker":
            found = to_thread.run_sync(model_checks.check_retrieval_model, name, chosen)
        case "elasticsearch":
            found = _check_elasticsearch(chosen, kept)
        case _:
            raise NotFound(f"unknown check {name!r}: name one of {', '.join(NAMES)}")
    return await run_check(name, found, fix=advise_setting(f"retrieval.{name}"))


async def _check_elasticsearch(chosen: Retrieval, kept: ServedIndexes | None) -> str:
    """Check that the server is an Elasticsearch of `MAJOR`, grants the required privileges, and holds, complete, every
    index that a corpus uses.
    """
    once = chosen.elasticsearch.model_copy(update={"retries": 0, "timeout_s": model_checks.TIMEOUT_S})
    server = ElasticsearchServer(once)
    if missing := await to_thread.run_sync(server.list_missing_privileges):
        raise NotReady(
            f"the key or user of Elasticsearch lacks {', '.join(missing)}", fix=f"make a new key: {MAKE_KEY}"
        )
    major, minor = await to_thread.run_sync(lambda: server.version)
    if major != MAJOR:
        message = f"Elasticsearch {major}.{minor} is not supported"
        raise NotReady(message, fix=f"{URL} must name a server of version {MAJOR}")
    whole = 0 if kept is None else await _count_whole(kept)
    return f"Elasticsearch {major}.{minor}" + (f"; {whole} indexes of corpora are complete" if kept else "")


async def _count_whole(kept: ServedIndexes) -> int:
    async with kept.database.transaction() as connection:
        rows = (await connection.execute(USED)).all()
    there = [row for row in rows if (kept.data_dir / row.path / FILE).is_file()]
    for row in there:
        try:
            await to_thread.run_sync(kept.backends[row.kind].check, kept.data_dir / row.path)
        except UnsoundIndex as unsound:
            message = f"the {row.kind} index of corpus {row.name}: {unsound.message}"
            raise NotReady(message, fix=f"mathrag corpus index {shlex.quote(row.name)}") from unsound
    return len(there)


def main() -> None:
    """Print the checks that the arguments name, as a JSON array."""
    chosen = settings.load().retrieval

    async def every() -> list[Check]:
        return [await check_part(name, chosen) for name in sys.argv[1:]]

    sys.stdout.buffer.write(msgspec.json.encode(run(every)))


if __name__ == "__main__":
    main()
