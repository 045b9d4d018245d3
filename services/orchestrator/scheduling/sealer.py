"""The sealer: makes rule banks of what jobs have mined. A loop of its own, as a large bank takes a minute."""

import logging
import time

from services.orchestrator.scheduling.routine import Routine
from shared.runtime import sealing
from shared.storage.database import Database
from shared.storage.outages import passing

LOOK_S = 1.0
AGAIN_S = 30.0
"""Before a bank is tried again that could not be sealed."""

_log = logging.getLogger(__name__)


class Sealer(Routine):
    """One bank after the other; one that cannot be sealed holds up no other one."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._database = database
        self._not_before: dict[str, float] = {}
        """By the name of a bank that could not be sealed."""

    async def once(self) -> float:
        """Seal every bank whose job has ended."""
        for bank in await sealing.due(self._database):
            if time.monotonic() >= self._not_before.get(bank, 0.0):
                await self._seal(bank)
        return LOOK_S

    async def _seal(self, bank: str) -> None:
        try:
            await sealing.seal(self._database, bank)
        except Exception as error:
            if passing(error):
                raise
            self._not_before[bank] = time.monotonic() + AGAIN_S
            _log.exception("rule bank %s cannot be sealed, trying again in %.0f s", bank, AGAIN_S)
