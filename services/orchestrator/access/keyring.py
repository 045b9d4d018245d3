"""Caches the valid API keys in this process for a few seconds, so that polling costs no query."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.exc import SQLAlchemyError

from services.orchestrator.access.sessions import Session
from shared import shapes
from shared.errors import TooMany, Unavailable
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
WRONG_KEYS = 20
"""Wrong keys that an address may send to the sign-in form in a minute."""


@contextmanager
def report_outages() -> Iterator[None]:
    """Turn errors of the database into `Unavailable`: no caller can be admitted without it."""
    try:
        yield
    except (SQLAlchemyError, OSError) as error:
        raise Unavailable("keys cannot be checked: the database does not answer", hint="see its log") from error


class Keyring:
    """The valid keys; there are only a few."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._known: dict[str, ValidKey] = {}
        self._read_at = float("-inf")
        self._used_at: dict[int, float] = {}
        self._wrong: Counter[str] = Counter()
        self._wrong_minute = 0.0

    async def find(self, database: Database, key: str) -> ValidKey | None:
        """Return the valid key that matches `key`; None if there is none.

        Raises:
            Unavailable: the database does not answer, so no caller can be admitted.
        """
        prefix = shapes.prefix_of(key)
        found = None if prefix is None else await self._load_key(database, prefix)
        if found is None or not shapes.matches_digest(key, found.digest):
            return None
        await self._note_use(database, found)
        return found

    async def find_session(self, database: Database, session: Session) -> ValidKey | None:
        """Return the key that was signed in with; None if it is no longer valid.

        Raises:
            Unavailable: the database does not answer, so no caller can be admitted.
        """
        found = await self._load_key(database, session.prefix)
        if found is not None:
            await self._note_use(database, found)
        return found

    async def _load_key(self, database: Database, prefix: str) -> ValidKey | None:
        async with self._lock:
            if self._clock() - self._read_at >= (FRESH_S if prefix in self._known else UNKNOWN_S):
                with report_outages():
                    self._known = await keys.load_valid_keys(database)
                self._read_at = self._clock()
            return self._known.get(prefix)

    async def _note_use(self, database: Database, key: ValidKey) -> None:
        if self._clock() - self._used_at.get(key.id, float("-inf")) >= USED_S:
            self._used_at[key.id] = self._clock()
            with report_outages():
                await keys.record_use(database, key)

    def count_wrong_key(self, address: str) -> None:
        """Count a wrong key that `address` sent to the sign-in form. A valid key is admitted whatever the count: a key
        of 256 bits cannot be guessed, and a limit on all would let one client lock out the others.

        Raises:
            TooMany: it has sent too many in this minute.
        """
        minute = self._clock() // 60
        if minute != self._wrong_minute:
            self._wrong.clear()
            self._wrong_minute = minute
        self._wrong[address] += 1
        if self._wrong[address] > WRONG_KEYS:
            raise TooMany("too many wrong keys were sent from your address", hint="wait a minute, then sign in again")
