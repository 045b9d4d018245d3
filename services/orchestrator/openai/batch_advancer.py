"""Advances batches one step at a time: check, wait for the jobs, write the files. A step that was killed is
repeated.
"""

import logging
import time
from collections.abc import Callable

from services.orchestrator.openai.batch_end import finish
from services.orchestrator.openai.identifiers import BATCH, format_id
from services.orchestrator.openai.input_check import validate
from services.orchestrator.scheduling.routine import Routine
from shared.settings import Settings
from shared.storage import batches, files
from shared.storage.batches import StoredBatch
from shared.storage.database import Database, is_passing

LOOK_S = 1.0
AGAIN_S = 30.0
"""Seconds to wait before a batch that could not be advanced is tried again."""

_log = logging.getLogger(__name__)


class BatchAdvancer(Routine):
    """Advances one batch after the other; one that cannot be advanced does not delay the others."""

    def __init__(self, database: Database, settings: Settings, started: Callable[[], None] = lambda: None) -> None:
        """`started` is called when a batch has got its jobs."""
        super().__init__()
        self._database = database
        self._settings = settings
        self._started = started
        self._not_before: dict[int, float] = {}
        """Monotonic time of the next try, by the id of a batch that could not be advanced."""

    async def run_once(self) -> float:
        """Take one step of every live batch, and delete expired files."""
        has_advanced = [await self._advance(batch) for batch in await batches.list_live(self._database)]
        await files.delete_expired(self._database)
        return 0.0 if any(has_advanced) else LOOK_S

    async def _advance(self, batch: StoredBatch) -> bool:
        if time.monotonic() < self._not_before.get(batch.id, 0.0):
            return False
        try:
            has_advanced = await advance_batch(self._database, self._settings, batch)
        except Exception as error:
            if is_passing(error):
                raise
            await self._postpone(batch)
            return False
        if has_advanced and batch.state == "validating":
            self._started()
        return has_advanced

    async def _postpone(self, batch: StoredBatch) -> None:
        """Fail a batch for which nothing was computed; otherwise try it again, so that no answer is lost."""
        _log.exception("%s cannot be brought on", format_id(BATCH, batch.public_id))
        if batch.state == "validating":
            message = "the service failed to read the file; its log has the reason"
            await batches.fail(self._database, batch.id, [{"code": "internal_error", "message": message}])
        self._not_before[batch.id] = time.monotonic() + AGAIN_S


async def advance_batch(database: Database, settings: Settings, batch: StoredBatch) -> bool:
    """Advance the batch to its next state; return False if it has to wait."""
    if batch.state in ("finalizing", "cancelling"):
        return await finish(database, batch)
    if batch.is_over:
        await batches.finalize(database, batch.id, "expired")
        return True
    if batch.state == "validating":
        return await validate(database, settings, batch)
    if await batches.list_live_jobs(database, batch.id):
        return False
    await batches.finalize(database, batch.id, "completed")
    return True
