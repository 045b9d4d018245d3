"""What can be changed while everything runs: the defaults of jobs, searches and chats. The newest row holds.

A job's parameters are resolved once, when it is accepted; nobody looks here afterwards.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.errors import PreconditionFailed
from shared.storage import operations, pages
from shared.storage.database import Database

Tree = Mapping[str, Any]

SELECT = "SELECT version, CAST(document AS text) AS document, changed_by, changed_at FROM configurations"
NEWEST = text(f"{SELECT} ORDER BY version DESC LIMIT 1")
LIST = text(f"{SELECT} WHERE version < :before ORDER BY version DESC LIMIT :n")
# Two who have seen the same version want the same next one, and only one of them gets it.
INSERT = text("""
    INSERT INTO configurations (version, document, changed_by) VALUES (:version, CAST(:document AS json), :actor)
    ON CONFLICT DO NOTHING RETURNING version""")
VERSIONS = text(f"{SELECT} WHERE version = ANY(:versions)")
SCOPE = pages.scope("configurations")


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """One version of it."""

    version: int = 0
    """Grows by one with every change; 0: nobody has changed anything yet."""
    params: dict[str, Any] = {}
    """Parameters, nested as a job's, which jobs, searches and chats get that do not name them."""
    changed_by: str | None = None
    changed_at: datetime | None = None


DEEPEST = 8
"""Objects within objects, more than parameters have: what is nested deeper is refused, and not walked through."""
SHIPPED = Configuration()
"""Before the first change."""


def merged(under: Tree, over: Tree) -> dict[str, Any]:
    """`over` on top of `under`, object by object; what both hold as something else is `over`'s."""
    both = {
        name: merged(under[name], value)
        for name, value in over.items()
        if isinstance(value, Mapping) and isinstance(under.get(name), Mapping)
    }
    return {**under, **over, **both}


def pruned(tree: Tree, depth: int = DEEPEST) -> dict[str, Any]:
    """Without nulls, which take a parameter away, and without objects that are empty then."""
    found = {
        name: pruned(value, depth - 1) if isinstance(value, Mapping) and depth else value
        for name, value in tree.items()
    }
    return {name: value for name, value in found.items() if value is not None and value != {}}


async def newest(connection: AsyncConnection) -> Configuration:
    """The one that holds now: one row, by its index."""
    row = (await connection.execute(NEWEST)).mappings().first()
    return SHIPPED if row is None else _configuration(row)


async def holding(database: Database) -> Configuration:
    """The same, in one round trip."""
    async with database.statement() as connection:
        return await newest(connection)


async def versions(database: Database, wanted: Collection[int]) -> dict[int, Configuration]:
    """Those with these numbers, by number; 0 is what is shipped. One that does not exist is missing."""
    async with database.statement() as connection:
        rows = (await connection.execute(VERSIONS, {"versions": sorted(wanted)})).mappings()
        return {0: SHIPPED} | {row["version"]: _configuration(row) for row in rows}


async def follow(connection: AsyncConnection, actor: str, found: Configuration, params: Tree) -> None:
    """Write the version after `found`, and in the journal who did.

    Raises:
        PreconditionFailed: another one has followed it already.
    """
    version = found.version + 1
    values = {"version": version, "document": canonical.encode({"params": params}).decode(), "actor": actor}
    if (await connection.execute(INSERT, values)).first() is None:
        raise _changed(version)
    await operations.note(connection, actor, "configuration change", f"version {version}")


def expect(found: Configuration, versions: Collection[int] | None) -> None:
    """Go on if it is at one of `versions`; None: whatever it is at.

    Raises:
        PreconditionFailed: it is not.
    """
    if versions is not None and found.version not in versions:
        raise _changed(found.version)


def _changed(version: int) -> PreconditionFailed:
    hint = "get it again, then repeat with its new ETag"
    return PreconditionFailed(f"the configuration is at version {version}", hint=hint)


async def listed(database: Database, limit: int, cursor: str | None = None) -> pages.Page[Configuration]:
    """Every version, newest first."""
    before = pages.decode(cursor, SCOPE, 1)[0] if cursor else pages.LARGEST_KEY
    async with database.transaction() as connection:
        rows = (await connection.execute(LIST, {"before": before, "n": limit + 1})).mappings()
        found = [_configuration(row) for row in rows]
    return pages.page(found, limit, SCOPE, *(each.version for each in found[:limit][-1:]))


def _configuration(row: RowMapping) -> Configuration:
    params = msgspec.json.decode(row["document"])["params"]
    copied = ("version", "changed_by", "changed_at")
    return Configuration(params=params, **{name: row[name] for name in copied})
