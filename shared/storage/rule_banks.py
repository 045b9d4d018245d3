"""Rule banks: rules under a name, in order. A sealed bank is final, and is known by the hash of its content."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.mining import Mining
from shared.contracts.rules import Miner, Rule
from shared.errors import Conflict, Invalid
from shared.storage import pages
from shared.storage.copying import copy
from shared.storage.database import Database
from shared.storage.names import checked
from shared.storage.unknown import not_found

State = Literal["mining", "ready", "failed", "cancelled"]
FROM = """
    SELECT b.id, b.name, b.state, encode(b.hash, 'hex') AS hash, g.name AS graph,
        encode(b.graph_hash, 'hex') AS graph_hash, b.miner, b.limits, b.relations, b.rules,
        j.public_id::text AS job, b.reason, b.created_at, b.sealed_at
    FROM rule_banks b LEFT JOIN graphs g ON g.id = b.graph_id LEFT JOIN jobs j ON j.id = b.job_id"""
ONE = text(f"{FROM} WHERE b.name = :name")
LIST = text(f"{FROM} WHERE b.id < :before ORDER BY b.id DESC LIMIT :n")
SCOPE = pages.scope("rules")
LOCK = text("SELECT pg_advisory_xact_lock(hashtext('mathrag rule banks'))")
INSERT = text("""
    INSERT INTO rule_banks (name, state, graph_id, graph_hash, miner, limits, relations, job_id)
    VALUES (:name, 'mining', :graph, :graph_hash, :miner, CAST(:limits AS json), :relations, :job) RETURNING id""")
AGAIN = text("UPDATE rule_banks SET state = 'mining', job_id = :job, reason = NULL WHERE name = :name AND hash IS NULL")
COLUMNS = ("bank_id", "ordinal", "head", "certainty", "rule")
SEAL = text("""
    UPDATE rule_banks SET state = 'ready', hash = :hash, rules = :rules, reason = NULL, sealed_at = clock_timestamp()
    WHERE id = :bank AND hash IS NULL""")
END = text("UPDATE rule_banks SET state = :state, reason = :reason WHERE id = :bank AND hash IS NULL")
RULES = text("SELECT rule FROM rules WHERE bank_id = :bank ORDER BY ordinal")
PINNED_BY = text("""
    SELECT j.name FROM jobs j JOIN models m ON m.id = CAST(j.pins -> 'rules' ->> 'model_id' AS integer)
    WHERE j.ended_at IS NULL AND m.backend = 'rules' AND m.digest = :hash ORDER BY j.id LIMIT 5""")
DELETE = text("DELETE FROM rule_banks WHERE id = :bank")
BATCH = 1000
"""Rules that are read together."""


class RuleBank(msgspec.Struct, frozen=True, kw_only=True):
    """A bank as users see it."""

    id: int
    name: str
    state: State
    """`ready`: it is sealed, and can be used."""
    hash: str | None
    """SHA-256 over graph, miner, limits and every rule, in order; null until it is sealed."""
    graph: str | None
    """That it was mined from; null: it was imported."""
    graph_hash: str | None
    miner: Miner
    limits: dict[str, Any]
    """As they were given, with defaults; empty: it was imported."""
    relations: int | None
    """Head relations that are mined; null: it was imported."""
    rules: int
    job: str | None
    """That mines it, or has mined it."""
    reason: str | None
    """Why there are no rules, and what to do."""
    created_at: datetime
    sealed_at: datetime | None


class Origin(NamedTuple):
    """Where imported rules come from."""

    miner: Miner
    graph_hash: str | None = None
    mining: Mining | None = None
    hash: str | None = None
    """Of the bank that it is a copy of."""

    @property
    def limits(self) -> Any:
        """As a bank holds them."""
        return {} if self.mining is None else msgspec.to_builtins(self.mining)


class Content:
    """What a bank's hash is taken over, rule by rule."""

    def __init__(self, graph_hash: str | None, miner: str, limits: Any) -> None:
        self.rules = 0
        self._hash = hashlib.sha256(canonical.encode([graph_hash, miner, limits]))

    def add(self, rule: bytes) -> None:
        """The next rule, as canonical bytes."""
        self._hash.update(rule + b"\n")
        self.rules += 1

    def digest(self) -> bytes:
        """SHA-256 over all of it."""
        return self._hash.digest()


async def one(connection: AsyncConnection, name: str) -> RuleBank:
    """The bank called `name`.

    Raises:
        NotFound: there is none.
    """
    found = await named(connection, name)
    if found is None:
        raise await not_found(connection, "rules", name)
    return found


async def named(connection: AsyncConnection, name: str) -> RuleBank | None:
    """The bank called `name`, if there is one."""
    row = (await connection.execute(ONE, {"name": name})).mappings().first()
    return None if row is None else _bank(row)


async def listed(database: Database, limit: int, cursor: str | None = None) -> pages.Page[RuleBank]:
    """Banks, newest first."""
    before = pages.decode(cursor, SCOPE, 1)[0] if cursor else pages.LARGEST_KEY
    async with database.transaction() as connection:
        rows = (await connection.execute(LIST, {"before": before, "n": limit + 1})).mappings()
        found = [_bank(row) for row in rows]
    return pages.page(found, limit, SCOPE, *(bank.id for bank in found[:limit][-1:]))


async def sealed(connection: AsyncConnection, name: str) -> str:
    """The hash of the bank called `name`.

    Raises:
        NotFound: there is none.
        Conflict: it is not sealed.
    """
    bank = await one(connection, name)
    if bank.hash is None:
        hint = "wait for it" if bank.state == "mining" else "mine it again: mathrag rules mine"
        raise Conflict(f"`params.rules`: rule bank {name!r} is {bank.state}, so it has no rules yet", hint=hint)
    return bank.hash


async def open_mined(
    connection: AsyncConnection, name: str, graph: int, graph_hash: str, mining: Mining, relations: int, job: int
) -> None:
    """A bank that the job with this row id is about to mine; the caller holds `LOCK`."""
    values = {
        "name": checked(name), "graph": graph, "graph_hash": bytes.fromhex(graph_hash), "miner": miner_of(mining),
        "limits": canonical.encode(mining).decode(), "relations": relations, "job": job,
    }  # fmt: skip
    await connection.execute(INSERT, values)


async def mine_again(connection: AsyncConnection, name: str, job: int) -> None:
    """A bank that has no rules is mined by another job."""
    await connection.execute(AGAIN, {"name": name, "job": job})


async def end(connection: AsyncConnection, bank: int, state: State, reason: str) -> None:
    """The bank gets no rules, because its job ended otherwise."""
    await connection.execute(END, {"bank": bank, "state": state, "reason": reason})


async def seal(connection: AsyncConnection, bank: RuleBank, batches: AsyncIterator[Sequence[Rule]]) -> None:
    """Store the rules and seal the bank, all in the caller's transaction; `batches` may use its connection."""
    content = Content(bank.graph_hash, bank.miner, bank.limits)
    async for batch in batches:
        rows = []
        for ordinal, rule in enumerate(batch, start=content.rules):
            encoded = canonical.encode(rule)
            content.add(encoded)
            rows.append((bank.id, ordinal, rule.head.relation, rule.certainty, encoded))
        await copy(connection, "rules", COLUMNS, rows)
    await connection.execute(SEAL, {"bank": bank.id, "hash": content.digest(), "rules": content.rules})


async def create_imported(
    database: Database, name: str, origin: Origin, batches: AsyncIterator[Sequence[Rule]]
) -> tuple[RuleBank, bool]:
    """Store imported rules, all of them or nothing; the same again finds what is there. Returns whether it is new.

    Raises:
        Conflict: the name has other rules.
        Invalid: the name cannot be used, or the rules do not have the hash that `origin` gives them.
        Invalid, TooLarge: from `batches`.
    """
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        known = await named(connection, checked(name))
        if known is not None:
            return await _same(known, origin, batches), False
        limits = "{}" if origin.mining is None else canonical.encode(origin.mining).decode()
        graph_hash = bytes.fromhex(origin.graph_hash) if origin.graph_hash else None
        values = {"name": name, "graph": None, "graph_hash": graph_hash, "miner": origin.miner, "limits": limits,
                  "relations": None, "job": None}  # fmt: skip
        await connection.execute(INSERT, values)
        await seal(connection, await one(connection, name), batches)
        bank = await one(connection, name)
        if bank.rules == 0 and origin.hash is None:
            raise Invalid("the file holds no rules")
        if origin.hash not in (None, bank.hash):
            said = f"the rules have the hash {bank.hash}, and the file says {origin.hash}"
            raise Invalid(said, hint="export the bank again; a file that was edited is no copy of it")
    return bank, True


async def _same(bank: RuleBank, origin: Origin, batches: AsyncIterator[Sequence[Rule]]) -> RuleBank:
    content = Content(origin.graph_hash, origin.miner, origin.limits)
    async for batch in batches:
        for rule in batch:
            content.add(canonical.encode(rule))
    if content.digest().hex() != bank.hash:
        raise Conflict(f"rule bank {bank.name!r} exists with other rules", hint="choose another name")
    return bank


async def rules(connection: AsyncConnection, bank: int) -> AsyncIterator[list[Rule]]:
    """All rules of the bank with this row id, in order and in batches."""
    async with connection.stream(RULES, {"bank": bank}, execution_options={"yield_per": BATCH}) as found:
        async for rows in found.scalars().partitions(BATCH):
            yield [msgspec.json.decode(row, type=Rule) for row in rows]


async def delete(database: Database, name: str) -> RuleBank:
    """Delete a bank with its rules, and return what it was.

    Raises:
        NotFound: there is none.
        Conflict: it is being mined, or a live job follows it.
    """
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        bank = await one(connection, name)
        if bank.state == "mining":
            hint = f"mathrag job cancel {(bank.job or '')[:8]}, or wait"
            raise Conflict(f"rule bank {name!r} is being mined", hint=hint)
        users = list((await connection.execute(PINNED_BY, {"hash": bank.hash})).scalars())
        if users:
            raise Conflict(
                f"rule bank {name!r} is used by live jobs: {', '.join(users)}", hint="wait for them, or cancel them"
            )
        await connection.execute(DELETE, {"bank": bank.id})
    return bank


def miner_of(mining: Mining) -> str:
    """The miner's name: the tag of its limits."""
    return str(mining.__struct_config__.tag)


def _bank(row: RowMapping) -> RuleBank:
    return RuleBank(**row)
