"""Defaults of jobs, searches and chats, which can change while everything runs. The newest version is in force.

A job's parameters are resolved once, when it is accepted; later versions do not affect it.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import PreconditionFailed
from shared import canonical
from shared.params import drop_removed
from shared.storage.database import Database, Page, cursor_scope, load_page, record_operation

Tree = Mapping[str, Any]

SELECT = "SELECT version, CAST(document AS text) AS document, changed_by, changed_at FROM configurations"
NEWEST = text(f"{SELECT} ORDER BY version DESC LIMIT 1")
LIST = text(f"{SELECT} WHERE version < :before ORDER BY version DESC LIMIT :n")
# Of two clients that change the same version, only one can insert the next.
INSERT = text("""
    INSERT INTO configurations (version, document, changed_by) VALUES (:version, CAST(:document AS json), :actor)
    ON CONFLICT DO NOTHING RETURNING version""")
VERSIONS = text(f"{SELECT} WHERE version = ANY(:versions)")
SCOPE = cursor_scope("configurations")


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """One version of the configuration."""

    version: int = 0
    """Number of the version; it grows by one with every change, and 0 is the shipped configuration."""
    params: dict[str, Any] = {}
    """Default parameters, nested as in a job, for jobs, searches and chats that do not set them."""
    changed_by: str | None = None
    """Name of the API key that made the change, or `local` without keys; null for the shipped configuration."""
    changed_at: datetime | None = None
    """Time of the change; null for the shipped configuration."""


DEEPEST = 8
"""Deepest nesting that is processed, more than parameters have; deeper documents are refused."""
SHIPPED = Configuration()
"""The configuration before the first change."""


def merge(under: Tree, over: Tree) -> dict[str, Any]:
    """Merge `over` into `under` object by object; `over` wins for other values."""
    both = {
        name: merge(under[name], value)
        for name, value in over.items()
        if isinstance(value, Mapping) and isinstance(under.get(name), Mapping)
    }
    return {**under, **over, **both}


def prune(tree: Tree, depth: int = DEEPEST) -> dict[str, Any]:
    """Remove nulls, which unset a parameter, and the objects that this leaves empty."""
    found = {
        name: prune(value, depth - 1) if isinstance(value, Mapping) and depth else value for name, value in tree.items()
    }
    return {name: value for name, value in found.items() if value is not None and value != {}}


async def find_newest(connection: AsyncConnection) -> Configuration:
    """Load the version in force, without removed parameters, because no job could be submitted with them."""
    row = (await connection.execute(NEWEST)).mappings().first()
    if row is None:
        return SHIPPED
    found = _make_configuration(row)
    return msgspec.structs.replace(found, params=drop_removed(found.params))


async def load_newest(database: Database) -> Configuration:
    """Load the version in force, in one round trip."""
    async with database.statement() as connection:
        return await find_newest(connection)


async def load_versions(database: Database, wanted: Collection[int]) -> dict[int, Configuration]:
    """Load versions by number; 0 is the shipped one, and unknown numbers are left out."""
    async with database.statement() as connection:
        rows = (await connection.execute(VERSIONS, {"versions": sorted(wanted)})).mappings()
        return {0: SHIPPED} | {row["version"]: _make_configuration(row) for row in rows}


async def insert_next(connection: AsyncConnection, actor: str, found: Configuration, params: Tree) -> None:
    """Insert the version after `found` and record the change in the journal.

    Raises:
        PreconditionFailed: another change came first.
    """
    version = found.version + 1
    values = {"version": version, "document": canonical.encode({"params": params}).decode(), "actor": actor}
    if (await connection.execute(INSERT, values)).first() is None:
        raise _version_conflict(version)
    await record_operation(connection, actor, "configuration change", f"version {version}")


def check_version(found: Configuration, versions: Collection[int] | None) -> None:
    """Check that the configuration is at one of `versions`; None accepts any.

    Raises:
        PreconditionFailed: it is not.
    """
    if versions is not None and found.version not in versions:
        raise _version_conflict(found.version)


def _version_conflict(version: int) -> PreconditionFailed:
    hint = "read it again, then repeat the change with its new ETag"
    return PreconditionFailed(f"the configuration is at version {version}", hint=hint)


async def list_versions(database: Database, limit: int, cursor: str | None = None) -> Page[Configuration]:
    """List all versions, newest first."""
    return await load_page(database, LIST, SCOPE, limit, cursor, _make_configuration, key="version")


def _make_configuration(row: RowMapping) -> Configuration:
    params = msgspec.json.decode(row["document"])["params"]
    copied = ("version", "changed_by", "changed_at")
    return Configuration(params=params, **{name: row[name] for name in copied})
