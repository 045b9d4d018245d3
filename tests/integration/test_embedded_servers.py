"""The embedded PostgreSQL and Redis are real, keep their state, and change nothing outside their folder."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from shared.storage.database import Database


@pytest.mark.anyio
async def test_application_may_not_update_attempts(database: Database) -> None:
    """The application's role has no right to change an attempt."""
    with pytest.raises(DBAPIError, match="permission denied"):
        async with database.transaction() as connection:
            await connection.execute(text("UPDATE attempts SET accepted = false"))
