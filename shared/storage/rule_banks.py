"""Store rule banks: named, ordered lists of rules. A sealed bank is final and identified by its content's hash."""

import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.contracts.mining import Mining, StoredMining
from shared.contracts.rules import Miner, Rule
from shared.errors import Conflict, Invalid, NotFound
from shared.storage import pages
from shared.storage.copying import copy
from shared.storage.database import Database
from shared.storage.names import check_name
from shared.storage.unknown import make_not_found

State = Literal["mining", "ready", "failed", "cancelled"]
FROM = """
    SELECT b.id, b.name, b.state, encode(b.hash, 'hex') AS hash, g.name AS graph,
        encode(b.graph_hash, 'hex') AS graph_hash, b.miner, b.limits, b.relations, b.rules,
        j.public_id::text AS job, b.reason, b.created_at, b.sealed_at
    FROM rule_banks b LEFT JOIN graphs g ON g.id = b.graph_id LEFT JOIN jobs j ON j.id = b.job_id"""
ONE = text(f"{FROM} WHERE b.name = :name")
LIST = text(f"{FROM} WHERE b.id < :before ORDER BY b.id DESC LIMIT :n")
SCOPE = pages.cursor_scope("rules")
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
RULES = text("""
    SELECT rule FROM rules WHERE bank_id = :bank AND ordinal >= :first AND ordinal < :beyond ORDER BY ordinal""")
PINNED_BY = text("""
    SELECT j.name FROM jobs j JOIN models m ON m.id = CAST(j.pins -> 'rules' ->> 'model_id' AS integer)
    WHERE j.ended_at IS NULL AND m.backend = 'rules' AND m.digest = :hash ORDER BY j.id LIMIT 5""")
DELETE = text("DELETE FROM rule_banks WHERE id = :bank")
BATCH = 1000
"""Rules read per round trip."""


class RuleBank(msgspec.Struct, frozen=True, kw_only=True):
    """A rule bank as users see it."""

    id: int
    name: str
    state: State
    """`ready` means that the bank is sealed and can be used."""
    hash: str | None
    """SHA-256 of graph, miner, limits and all rules in order; null until the bank is sealed."""
    graph: str | None
    """Graph from which it was mined; null for an imported bank."""
    graph_hash: str | None
    miner: Miner
    limits: dict[str, Any]
    """The miner's limits with defaults; empty for an imported bank."""
    relations: int | None
    """Number of mined head relations; null for an imported bank."""
    rules: int
    job: str | None
    """The mining job."""
    reason: str | None
    """Why the bank has no rules, and what to do."""
    created_at: datetime
    sealed_at: datetime | None


class ImportOrigin(NamedTuple):
    """Origin of imported rules."""

    miner: Miner
    graph_hash: str | None = None
    mining: StoredMining | None = None
    hash: str | None = None
    """Hash of the bank of which this is a copy."""

    @property
    def limits(self) -> Any:
        """The limits as a bank stores them."""
        return {} if self.mining is None else msgspec.to_builtins(self.mining)


class BankDigest:
    """Hash of a bank, updated rule by rule."""

    def __init__(self, graph_hash: str | None, miner: str, limits: Any) -> None:
        self.rules = 0
        self._hash = hashlib.sha256(canonical.encode([graph_hash, miner, limits]))

    def add(self, rule: bytes) -> None:
        """Add the next rule, as canonical bytes."""
        self._hash.update(rule + b"\n")
        self.rules += 1

    def digest(self) -> bytes:
        """Return the SHA-256 of everything added."""
        return self._hash.digest()


async def get_bank(connection: AsyncConnection, name: str) -> RuleBank:
    """Get the bank called `name`.

    Raises:
        NotFound: there is none.
    """
    found = await find_bank(connection, name)
    if found is None:
        raise await make_not_found(connection, "rules", name)
    return found


async def find_bank(connection: AsyncConnection, name: str) -> RuleBank | None:
    """Find the bank called `name`; None if there is none."""
    row = (await connection.execute(ONE, {"name": name})).mappings().first()
    return None if row is None else _bank(row)


async def list_banks(database: Database, limit: int, cursor: str | None = None) -> pages.Page[RuleBank]:
    """List banks, newest first."""
    before = pages.decode_cursor(cursor, SCOPE, 1)[0] if cursor else pages.LARGEST_KEY
    async with database.transaction() as connection:
        rows = (await connection.execute(LIST, {"before": before, "n": limit + 1})).mappings()
        found = [_bank(row) for row in rows]
    return pages.make_page(found, limit, SCOPE, *(bank.id for bank in found[:limit][-1:]))


async def get_sealed_hash(connection: AsyncConnection, name: str) -> str:
    """Get the hash of the sealed bank called `name`.

    Raises:
        NotFound: there is none.
        Conflict: it is not sealed.
    """
    bank = await get_bank(connection, name)
    if bank.hash is None:
        hint = "wait for it" if bank.state == "mining" else "mine it again: mathrag rules mine"
        raise Conflict(f"`params.rules`: rule bank {name!r} is {bank.state}, so it has no rules yet", hint=hint)
    return bank.hash


async def insert_mining(
    connection: AsyncConnection, name: str, graph: int, graph_hash: str, mining: Mining, relations: int, job: int
) -> None:
    """Insert a bank that the job with this row id will mine; the caller holds `LOCK`."""
    values = {
        "name": check_name(name), "graph": graph, "graph_hash": bytes.fromhex(graph_hash), "miner": miner_of(mining),
        "limits": canonical.encode(mining).decode(), "relations": relations, "job": job,
    }  # fmt: skip
    await connection.execute(INSERT, values)


async def restart_mining(connection: AsyncConnection, name: str, job: int) -> None:
    """Assign another mining job to a bank without rules."""
    await connection.execute(AGAIN, {"name": name, "job": job})


async def end_without_rules(connection: AsyncConnection, bank: int, state: State, reason: str) -> None:
    """Record that the bank gets no rules because its job failed or was cancelled."""
    await connection.execute(END, {"bank": bank, "state": state, "reason": reason})


async def store_rules(connection: AsyncConnection, bank: RuleBank, batches: AsyncIterator[Sequence[Rule]]) -> None:
    """Store the rules and seal the bank in the caller's transaction; `batches` may use its connection."""
    content = BankDigest(bank.graph_hash, bank.miner, bank.limits)
    async for batch in batches:
        rows = []
        for ordinal, rule in enumerate(batch, start=content.rules):
            encoded = canonical.encode(rule)
            content.add(encoded)
            rows.append((bank.id, ordinal, rule.head.relation, rule.certainty, encoded))
        await copy(connection, "rules", COLUMNS, rows)
    await connection.execute(SEAL, {"bank": bank.id, "hash": content.digest(), "rules": content.rules})


async def create_imported(
    database: Database, name: str, origin: ImportOrigin, batches: AsyncIterator[Sequence[Rule]]
) -> tuple[RuleBank, bool]:
    """Store imported rules completely or not at all, or find an identical bank; also return whether it is new.

    Raises:
        Conflict: a bank with this name has other rules.
        Invalid: the name cannot be used, or the rules do not have the hash that `origin` gives them.
        Invalid, TooLarge: from `batches`.
    """
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        known = await find_bank(connection, check_name(name))
        if known is not None:
            return await _check_same_rules(known, origin, batches), False
        limits = "{}" if origin.mining is None else canonical.encode(origin.mining).decode()
        graph_hash = bytes.fromhex(origin.graph_hash) if origin.graph_hash else None
        values = {"name": name, "graph": None, "graph_hash": graph_hash, "miner": origin.miner, "limits": limits,
                  "relations": None, "job": None}  # fmt: skip
        await connection.execute(INSERT, values)
        await store_rules(connection, await get_bank(connection, name), batches)
        bank = await get_bank(connection, name)
        if bank.rules == 0 and origin.hash is None:
            raise Invalid("the file holds no rules")
        if origin.hash not in (None, bank.hash):
            problem = f"the rules have the hash {bank.hash}, but the file says {origin.hash}"
            raise Invalid(problem, hint="the file was edited or damaged: export the bank again")
    return bank, True


async def _check_same_rules(bank: RuleBank, origin: ImportOrigin, batches: AsyncIterator[Sequence[Rule]]) -> RuleBank:
    content = BankDigest(origin.graph_hash, origin.miner, origin.limits)
    async for batch in batches:
        for rule in batch:
            content.add(canonical.encode(rule))
    if content.digest().hex() != bank.hash:
        raise Conflict(f"rule bank {bank.name!r} exists with other rules", hint="choose another name")
    return bank


async def read_rules(database: Database, bank: RuleBank) -> AsyncIterator[list[Rule]]:
    """Yield all rules of a sealed bank in order and in batches, each read by a statement of its own, so that a slow
    reader holds no connection.

    Raises:
        NotFound: the bank was deleted while it was read.
    """
    for first in range(0, bank.rules, BATCH):
        beyond = min(first + BATCH, bank.rules)
        rows = await database.column(RULES, {"bank": bank.id, "first": first, "beyond": beyond})
        if len(rows) < beyond - first:
            raise NotFound(f"rule bank {bank.name!r} was deleted while it was read", hint="mathrag rules list")
        yield [msgspec.json.decode(row, type=Rule) for row in rows]


async def delete(database: Database, name: str) -> RuleBank:
    """Delete a bank with its rules and return it.

    Raises:
        NotFound: there is none.
        Conflict: it is being mined, or a live job uses it.
    """
    async with database.transaction() as connection:
        await connection.execute(LOCK)
        bank = await get_bank(connection, name)
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
    """Return the miner's name, which is the tag of its limits."""
    return str(mining.__struct_config__.tag)


def _bank(row: RowMapping) -> RuleBank:
    return RuleBank(**row)
