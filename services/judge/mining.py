"""Mine calls: one relation each, on a pool of processes that share the graph's files."""

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psutil
from sqlalchemy import text

from services.judge import graph_files
from services.judge.mining_pool import MiningPool
from shared.contracts.replies import Failure, FailureKind, Reply
from shared.contracts.requests import Request
from shared.runtime.answers import Answered, Receipt
from shared.runtime.claims import Claimed
from shared.runtime.execution import Release
from shared.runtime.models import miner_identity
from shared.storage.database import Database
from shared.storage.sql import sql

GRAPH = text("""
    SELECT m.digest, (SELECT g.id FROM graphs g WHERE encode(g.hash, 'hex') = m.digest ORDER BY g.id LIMIT 1) AS graph
    FROM models m WHERE m.id = :model""")
# Those of a paused job are: what is in work may end.
WANTED = sql("""
    SELECT EXISTS (SELECT 1 FROM steps t JOIN samples s ON {WAITS_FOR_STEP}
                   JOIN jobs j ON j.id = s.job_id AND j.state <> 'cancelling' WHERE t.call_id = :call)""")
WANTED_S = 2.0
"""Between two looks whether somebody still waits for a relation: it may take an hour."""
PREFIX = "mathrag-mining-"
_REQUEST = msgspec.json.Decoder(Request)


class Lacking(Exception):
    """The graph cannot be mined here; the message says why."""


class Mining:
    """The executor of mine calls. Graphs are written to a temporary folder when their first relation comes."""

    def __init__(self, database: Database, pool: MiningPool) -> None:
        self._database = database
        self._pool = pool
        _remove_leftovers()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self._writing = asyncio.Lock()
        self._users: Counter[Path] = Counter()

    async def run(self, calls: Sequence[Claimed], epoch: int | None) -> AsyncIterator[Answered | Release]:  # noqa: ARG002 - no lease
        """One after the other: the worker claims one call a chunk, and runs as many chunks as there are processes.

        A relation that nobody waits for any more goes back, and its process is killed.
        """
        for call in calls:
            started = datetime.now(UTC)
            reply = await self._while_wanted(call)
            if reply is None:
                yield Release(call.id)
                continue
            receipt = Receipt(started_at=started, ended_at=datetime.now(UTC))
            yield Answered(call_id=call.id, reply=reply, receipt=receipt)

    async def close(self) -> None:
        """End the processes, and remove the files."""
        await self._pool.close()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _while_wanted(self, call: Claimed) -> Reply | None:
        replying = asyncio.create_task(self._reply(call))
        try:
            while not (await asyncio.wait({replying}, timeout=WANTED_S))[0]:
                if not (await self._database.column(WANTED, {"call": call.id}))[0]:
                    return None
            return await replying
        finally:
            replying.cancel()
            await asyncio.gather(replying, return_exceptions=True)

    async def _reply(self, call: Claimed) -> Reply:
        request = _REQUEST.decode(call.request)
        if request.mining is None:
            return Failure(kind=FailureKind.REFUSED, detail="the call names no miner")
        try:
            async with self._graph(call.model_id, request.model) as graph:
                return await self._pool.mine(graph, str(request.values["relation"]), request.mining)
        except Lacking as error:
            return Failure(kind=FailureKind.BACKEND_ERROR, detail=str(error))

    @asynccontextmanager
    async def _graph(self, model: int, identity: str) -> AsyncIterator[Path]:
        """The folder of the graph that the model stands for; it stays while somebody is here."""
        async with self._writing:
            folder = await self._provide(model, identity)
            self._users[folder] += 1
        try:
            yield folder
        finally:
            self._users[folder] -= 1

    async def _provide(self, model: int, identity: str) -> Path:
        folder = self._folder / identity
        if folder.exists():
            return folder
        async with self._database.transaction() as connection:
            row = (await connection.execute(GRAPH, {"model": model})).one()
            if miner_identity(row.digest).hash.hex() != identity:
                raise Lacking(
                    "the job was given other miners than this worker has; restart the service, and mine again"
                )
            if row.graph is None:
                raise Lacking("the graph is not there any more")
            await self._forget_unused()
            partial = folder.with_suffix(".partial")
            partial.mkdir(exist_ok=True)
            await graph_files.write(connection, row.graph, partial)
        partial.rename(folder)
        return folder

    async def _forget_unused(self) -> None:
        for folder in [each for each in self._users if not self._users[each]]:
            del self._users[folder]
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _remove_leftovers() -> None:
    """Folders of workers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if folder.stat().st_uid == os.getuid() and pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
