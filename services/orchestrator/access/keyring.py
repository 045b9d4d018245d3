"""The valid API keys as this process knows them: read again every few seconds, so that polling costs no query."""

import asyncio
import time
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from services.orchestrator.access.sessions import Session, is_valid
from shared.contracts import api_keys as api_keys
from shared.errors import Unavailable
from shared.storage import keys
from shared.storage.database import Database
from shared.storage.keys import Valid

FRESH_S = 5.0
"""A revoked key opens nothing after this time."""
UNKNOWN_S = 0.1
"""A key that was just made is looked for at once, but strangers cause no more queries than this allows."""
USED_S = 60.0


class Keyring:
    """All valid keys; a handful."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._known: dict[str, Valid] = {}
        self._read_at = float("-inf")
        self._used_at: dict[int, float] = {}

    async def find(self, database: Database, key: str) -> Valid | None:
        """The valid key that `key` is; None: there is none.

        Raises:
            Unavailable: the database does not answer, so nobody can be let in.
        """
        prefix = api_keys.prefix_of(key)
        if prefix is None:
            return None
        return await self._matching(database, prefix, lambda found: api_keys.same(key, found.digest))

    async def find_session(self, database: Database, session: Session) -> Valid | None:
        """The valid key that `session` was signed in with; None: there is none, or the session is not its own.

        Raises:
            Unavailable: the database does not answer, so nobody can be let in.
        """
        return await self._matching(database, session.prefix, lambda found: is_valid(session, found.digest))

    async def _matching(self, database: Database, prefix: str, opens: Callable[[Valid], bool]) -> Valid | None:
        try:
            found = await self._at(database, prefix)
            if found is None or not opens(found):
                return None
            await self._note_use(database, found)
        except (SQLAlchemyError, OSError) as error:
            raise Unavailable("keys cannot be checked: the database does not answer", hint="see its log") from error
        return found

    async def _at(self, database: Database, prefix: str) -> Valid | None:
        async with self._lock:
            if self._clock() - self._read_at >= (FRESH_S if prefix in self._known else UNKNOWN_S):
                self._known = await keys.valid(database)
                self._read_at = self._clock()
            return self._known.get(prefix)

    async def _note_use(self, database: Database, key: Valid) -> None:
        if self._clock() - self._used_at.get(key.id, float("-inf")) >= USED_S:
            self._used_at[key.id] = self._clock()
            await keys.used(database, key)
