"""Create, change, rotate, revoke and list API keys. The database holds only hashes of keys."""

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, Invalid, NotFound
from shared import shapes
from shared.shapes import Scope
from shared.storage.database import NAME_HINT, Database, check_name, is_usable, record_operation

MAX_WEIGHT = 100
WEIGHT_HINT = "use 1 for most keys, and 3 for one that shall get three times as many samples"
VALID = "revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())"
# Of two concurrent requests for a key with the same name, only one may succeed.
LOCK = text("SELECT pg_advisory_xact_lock(hashtext('mathrag keys'))")
INSERT = text("""
    INSERT INTO api_keys (name, prefix, hash, scopes, expires_at, weight, project)
    VALUES (:name, :prefix, :digest, CAST(:scopes AS text[]), now() + CAST(:lifetime AS interval),
        :weight, :project)""")
NEWEST = text(f"""
    SELECT scopes, expires_at - created_at AS lifetime, weight, project FROM api_keys WHERE name = :name AND {VALID}
    ORDER BY id DESC LIMIT 1""")  # noqa: S608 - constants
RETIRE = text(f"""
    UPDATE api_keys SET expires_at = LEAST(expires_at, now() + CAST(:grace AS interval))
    WHERE name = :name AND {VALID} RETURNING prefix""")  # noqa: S608
CHANGE = text(f"""
    UPDATE api_keys SET weight = :weight, project = :project WHERE name = :name AND {VALID}""")  # noqa: S608
REVOKE = text(f"""
    UPDATE api_keys SET revoked_at = now() WHERE (name = :which OR prefix = :which) AND {VALID}
    RETURNING name, prefix""")  # noqa: S608
LIST = text(f"""
    SELECT name, prefix, scopes, weight, project, {VALID} AS valid, created_at, expires_at, revoked_at, used_at
    FROM api_keys ORDER BY name, id""")  # noqa: S608
ALL_VALID = text(f"SELECT id, name, prefix, hash AS digest, scopes, project FROM api_keys WHERE {VALID}")  # noqa: S608
USED = text("""
    UPDATE api_keys SET used_at = now()
    WHERE id = :id AND (used_at IS NULL OR used_at < now() - interval '1 minute')""")


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key as operators see it."""

    name: str
    prefix: str
    scopes: list[str]
    weight: int
    project: str | None
    valid: bool
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    used_at: datetime | None
    """Accurate to the minute."""

    @property
    def state(self) -> str:
        """Return whether the key is valid, and if not, why."""
        return "valid" if self.valid else "revoked" if self.revoked_at else "expired"


class ValidKey(NamedTuple):
    """A key that is valid now."""

    id: int
    name: str
    prefix: str
    digest: bytes
    scopes: tuple[str, ...]
    project: str | None = None


async def create_key(
    database: Database,
    actor: str,
    name: str,
    scopes: Collection[Scope],
    lifetime: timedelta | None = None,
    *,
    weight: int = 1,
    project: str | None = None,
) -> str:
    """Create a key and return it; it cannot be shown again.

    Raises:
        Conflict: a valid key has this name.
        Invalid: the name, weight or project cannot be used, or no scope is given.
    """
    check_new_key(name, scopes)
    check_share(weight, project, scopes)
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        if (await connection.execute(NEWEST, {"name": name})).first() is not None:
            raise Conflict(
                f"key {name!r} already exists", hint=f"choose another name, or replace it: mathrag key rotate {name}"
            )
        return await _insert(connection, actor, "key create", name, sorted(scopes), lifetime, weight, project)


def check_new_key(name: str, scopes: Collection[Scope]) -> None:
    """Check the parts that do not depend on other keys.

    Raises:
        Invalid: the name cannot be used, or no scope is given.
    """
    if check_name(name).startswith(shapes.PREFIX):
        raise Invalid(f"`name`: {name!r} looks like a key", hint="name it after who will use it")
    if not scopes:
        raise Invalid("`scope`: a key needs at least one scope", hint=f"choose one or more of {', '.join(Scope)}")


def check_share(weight: int, project: str | None, scopes: Collection[str]) -> None:
    """Check a key's weight and project.

    Raises:
        Invalid: the weight is not between 1 and 100, the project is not a valid name, or the key is an operator's.
    """
    if not 1 <= weight <= MAX_WEIGHT:
        raise Invalid(f"`weight`: {weight} is not between 1 and {MAX_WEIGHT}", hint=WEIGHT_HINT)
    if project is not None and not is_usable(project):
        raise Invalid(f"`project`: {project[:120]!r} is not a valid name", hint=NAME_HINT)
    if project is not None and Scope.OPERATE in scopes:
        raise Invalid("`project`: an operator's key sees all projects", hint="leave out the project, or the scope")


async def change_key(
    database: Database,
    actor: str,
    name: str,
    weight: int | None = None,
    project: str | msgspec.UnsetType | None = msgspec.UNSET,
) -> tuple[int, str | None]:
    """Change weight and project of all valid keys with a name, and return both.

    Jobs and uploads of before keep their weight and project.

    Args:
        weight: None leaves it unchanged.
        project: None removes it.

    Raises:
        NotFound: no valid key has this name.
        Invalid: the weight or the project cannot be used.
    """
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        old = await _load_newest(connection, name)
        new_weight = old.weight if weight is None else weight
        new_project = old.project if isinstance(project, msgspec.UnsetType) else project
        check_share(new_weight, new_project, old.scopes)
        values = {"weight": new_weight, "project": new_project}
        await connection.execute(CHANGE, {"name": name, **values})
        await record_operation(connection, actor, "key set", name, **values)
    return new_weight, new_project


async def _load_newest(connection: AsyncConnection, name: str) -> Row[Any]:
    found = (await connection.execute(NEWEST, {"name": name})).first()
    if found is None:
        raise NotFound(f"no valid key has the name {name!r}", hint="mathrag key list")
    return found


async def rotate_key(database: Database, actor: str, name: str, grace: timedelta) -> str:
    """Create a key with the name, scopes, lifetime, weight and project of the old one, which stays valid for `grace`;
    return it.

    Raises:
        NotFound: no valid key has this name.
    """
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        old = await _load_newest(connection, name)
        await connection.execute(RETIRE, {"name": name, "grace": grace})
        return await _insert(connection, actor, "key rotate", name, old.scopes, old.lifetime, old.weight, old.project)


async def _insert(
    connection: AsyncConnection,
    actor: str,
    action: str,
    name: str,
    scopes: Collection[str],
    lifetime: timedelta | None,
    weight: int,
    project: str | None,
) -> str:
    issued = shapes.issue_key()
    noted = {"prefix": issued.prefix, "scopes": list(scopes), "weight": weight, "project": project}
    await connection.execute(INSERT, {**noted, "name": name, "digest": issued.digest, "lifetime": lifetime})
    await record_operation(connection, actor, action, name, **noted)
    return issued.key


async def revoke_keys(database: Database, actor: str, which: str) -> list[str]:
    """Revoke all keys with a name, or the one with a prefix; return the revoked keys' prefixes.

    Raises:
        NotFound: no valid key has this name or prefix.
    """
    async with database.transaction() as connection:
        rows = (await connection.execute(REVOKE, {"which": which})).all()
        if not rows:
            raise NotFound(f"no valid key has the name or prefix {which!r}", hint="mathrag key list")
        for row in rows:
            await record_operation(connection, actor, "key revoke", row.name, prefix=row.prefix)
    return [row.prefix for row in rows]


async def list_keys(database: Database) -> list[ApiKey]:
    """List all keys, also expired and revoked ones, by name."""
    async with database.transaction() as connection:
        rows = (await connection.execute(LIST)).mappings().all()
    return [ApiKey(**row) for row in rows]


async def load_valid_keys(database: Database) -> dict[str, ValidKey]:
    """Load the valid keys by prefix."""
    async with database.transaction() as connection:
        rows = (await connection.execute(ALL_VALID)).all()
    return {
        row.prefix: ValidKey(row.id, row.name, row.prefix, row.digest, tuple(row.scopes), row.project) for row in rows
    }


async def record_use(database: Database, key: ValidKey) -> None:
    """Record that the key was used, at most once a minute."""
    async with database.transaction() as connection:
        await connection.execute(USED, {"id": key.id})
