"""The sealer turns what jobs have mined into rule banks. It has its own loop, because a large bank takes a minute."""

import logging
import time

from services.orchestrator.scheduling.routine import Routine
from shared.runtime import mining
from shared.storage.database import Database, is_passing

LOOK_S = 1.0
AGAIN_S = 30.0
"""Seconds to wait before a bank that could not be sealed is tried again."""

_log = logging.getLogger(__name__)


class Sealer(Routine):
    """Seals one bank after the other; one that cannot be sealed does not delay the others."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._not_before: dict[str, float] = {}
        """Monotonic time of the next try, by the name of a bank that could not be sealed."""

    async def run_once(self) -> float:
        """Seal every bank whose job has ended."""
        for bank in await mining.list_due_banks(self._database):
            if time.monotonic() >= self._not_before.get(bank, 0.0):
                await self._seal(bank)
        return LOOK_S

    async def _seal(self, bank: str) -> None:
        try:
            await mining.seal_bank(self._database, bank)
        except Exception as error:
            if is_passing(error):
                raise
            self._not_before[bank] = time.monotonic() + AGAIN_S
            _log.exception("rule bank %s cannot be sealed, trying again in %.0f s", bank, AGAIN_S)
