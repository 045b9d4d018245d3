"""Answer mine calls, one relation each, with a pool of processes that share the graph's files."""

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
from shared.calls import Request, TemporalSimple
from shared.replies import Failure, FailureKind, Reply
from shared.runtime.pins import miner_identity
from shared.runtime.queue import AnsweredCall, ClaimedCall, Receipt
from shared.runtime.worker import Release
from shared.storage.database import Database, sql

GRAPH = text("""
    SELECT m.digest, (SELECT g.id FROM graphs g WHERE encode(g.hash, 'hex') = m.digest ORDER BY g.id LIMIT 1) AS graph
    FROM models m WHERE m.id = :model""")
# Calls of a paused job are still wanted: work that has begun may end.
WANTED = sql("""
    SELECT EXISTS (SELECT 1 FROM steps t JOIN samples s ON {WAITS_FOR_STEP}
                   JOIN jobs j ON j.id = s.job_id AND j.state <> 'cancelling' WHERE t.call_id = :call)""")
CHECK_S = 2.0
"""Between two checks whether a job still waits for a relation, which may take an hour."""
PREFIX = "mathrag-mining-"
_REQUEST = msgspec.json.Decoder(Request)


class CannotMine(Exception):
    """The graph cannot be mined here; the message says why."""


class MineExecutor:
    """The executor of mine calls. A graph is written to a temporary folder when its first relation is mined."""

    def __init__(self, database: Database, pool: MiningPool) -> None:
        self._database = database
        self._pool = pool
        _remove_leftovers()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
        self._writing = asyncio.Lock()
        self._users: Counter[Path] = Counter()

    async def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[AnsweredCall | Release]:  # noqa: ARG002 - no lease
        """Mine one call after another: the worker claims one call per chunk, and runs one chunk per process.

        A call for which no job waits any more is released, and its process is killed.
        """
        for call in calls:
            started = datetime.now(UTC)
            reply = await self._reply_while_wanted(call)
            if reply is None:
                yield Release(call.id)
                continue
            receipt = Receipt(started_at=started, ended_at=datetime.now(UTC))
            yield AnsweredCall(call_id=call.id, reply=reply, receipt=receipt)

    async def close(self) -> None:
        """End the processes and remove the files."""
        await self._pool.close()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def _reply_while_wanted(self, call: ClaimedCall) -> Reply | None:
        replying = asyncio.create_task(self._reply(call))
        try:
            while not (await asyncio.wait({replying}, timeout=CHECK_S))[0]:
                if not (await self._database.column(WANTED, {"call": call.id}))[0]:
                    return None
            return await replying
        finally:
            replying.cancel()
            await asyncio.gather(replying, return_exceptions=True)

    async def _reply(self, call: ClaimedCall) -> Reply:
        request = _REQUEST.decode(call.request)
        if request.mining is None:
            return Failure(kind=FailureKind.REFUSED, detail="the call names no miner")
        if isinstance(request.mining, TemporalSimple):
            return Failure(kind=FailureKind.REFUSED, detail="this release has no miner temporal-simple")
        try:
            async with self._open_graph(call.model_id, request.model) as graph:
                return await self._pool.mine(graph, str(request.values["relation"]), request.mining)
        except CannotMine as error:
            return Failure(kind=FailureKind.BACKEND_ERROR, detail=str(error))

    @asynccontextmanager
    async def _open_graph(self, model: int, identity: str) -> AsyncIterator[Path]:
        """Yield the folder of the model's graph, which is kept while any block uses it."""
        async with self._writing:
            folder = await self._provide_folder(model, identity)
            self._users[folder] += 1
        try:
            yield folder
        finally:
            self._users[folder] -= 1

    async def _provide_folder(self, model: int, identity: str) -> Path:
        folder = self._folder / identity
        if folder.exists():
            return folder
        async with self._database.transaction() as connection:
            row = (await connection.execute(GRAPH, {"model": model})).one()
            if miner_identity(row.digest).hash.hex() != identity:
                raise CannotMine(
                    "the job was submitted with other miners than this worker has; restart the service and mine again"
                )
            if row.graph is None:
                raise CannotMine("the graph does not exist any more; import it and mine again")
            await self._remove_unused()
            partial = folder.with_suffix(".partial")
            partial.mkdir(exist_ok=True)
            await graph_files.write_graph(connection, row.graph, partial)
        partial.rename(folder)
        return folder

    async def _remove_unused(self) -> None:
        for folder in [each for each in self._users if not self._users[each]]:
            del self._users[folder]
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def _remove_leftovers() -> None:
    """Remove the folders of workers that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        pid = folder.name.removeprefix(PREFIX).partition("-")[0]
        if folder.stat().st_uid == os.getuid() and pid.isdigit() and not psutil.pid_exists(int(pid)):
            shutil.rmtree(folder, ignore_errors=True)
