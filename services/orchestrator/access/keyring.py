"""Caches the valid API keys in this process for a few seconds, so that polling costs no query."""

import asyncio
import time
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from services.orchestrator.access.sessions import Session, is_valid
from shared.contracts import api_keys as api_keys
from shared.errors import Unavailable
from shared.storage import keys
from shared.storage.database import Database
from shared.storage.keys import ValidKey

FRESH_S = 5.0
"""Seconds after which a revoked key is refused."""
UNKNOWN_S = 0.1
"""Shortest time in seconds between look-ups of unknown keys: a new key works at once, and strangers cause no more
queries than this.
"""
USED_S = 60.0


class Keyring:
    """The valid keys; there are only a few."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._known: dict[str, ValidKey] = {}
        self._read_at = float("-inf")
        self._used_at: dict[int, float] = {}

    async def find(self, database: Database, key: str) -> ValidKey | None:
        """Return the valid key that matches `key`; None if there is none.

        Raises:
            Unavailable: the database does not answer, so no caller can be admitted.
        """
        prefix = api_keys.prefix_of(key)
        if prefix is None:
            return None
        return await self._find_matching(database, prefix, lambda found: api_keys.matches_digest(key, found.digest))

    async def find_session(self, database: Database, session: Session) -> ValidKey | None:
        """Return the valid key that signed `session`; None if there is none, or the signature does not match.

        Raises:
            Unavailable: the database does not answer, so no caller can be admitted.
        """
        return await self._find_matching(database, session.prefix, lambda found: is_valid(session, found.digest))

    async def _find_matching(
        self, database: Database, prefix: str, opens: Callable[[ValidKey], bool]
    ) -> ValidKey | None:
        try:
            found = await self._load_key(database, prefix)
            if found is None or not opens(found):
                return None
            await self._note_use(database, found)
        except (SQLAlchemyError, OSError) as error:
            raise Unavailable("keys cannot be checked: the database does not answer", hint="see its log") from error
        return found

    async def _load_key(self, database: Database, prefix: str) -> ValidKey | None:
        async with self._lock:
            if self._clock() - self._read_at >= (FRESH_S if prefix in self._known else UNKNOWN_S):
                self._known = await keys.load_valid_keys(database)
                self._read_at = self._clock()
            return self._known.get(prefix)

    async def _note_use(self, database: Database, key: ValidKey) -> None:
        if self._clock() - self._used_at.get(key.id, float("-inf")) >= USED_S:
            self._used_at[key.id] = self._clock()
            await keys.record_use(database, key)
