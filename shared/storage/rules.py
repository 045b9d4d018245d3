"""Rows of rule banks and their rules."""

import hashlib
from array import array
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, Invalid, NotFound
from shared import canonical
from shared.calls import Mining, StoredMining
from shared.replies import Miner, NumberedRule, Rule
from shared.samples import Phrase
from shared.storage import devices
from shared.storage.database import (
    Database,
    Page,
    check_name,
    copy,
    cursor_scope,
    decode_cursor,
    load_named,
    load_page,
    make_page,
)
from shared.storage.devices import ModelJob

# Store rule banks: named, ordered lists of rules. A sealed bank is final and identified by its content's hash.

State = Literal["mining", "ready", "failed", "cancelled"]
FROM = """
    SELECT b.id, b.name, b.state, encode(b.hash, 'hex') AS hash, g.name AS graph,
        encode(b.graph_hash, 'hex') AS graph_hash, b.miner, b.limits, b.relations, b.rules,
        j.public_id::text AS job, b.reason, b.project, b.created_at, b.sealed_at
    FROM rule_banks b LEFT JOIN graphs g ON g.id = b.graph_id LEFT JOIN jobs j ON j.id = b.job_id"""
ONE = text(f"{FROM} WHERE b.name = :name")
LIST = text(f"{FROM} WHERE b.id < :before ORDER BY b.id DESC LIMIT :n")
SCOPE = cursor_scope("rules")
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
    """A rule bank."""

    id: int
    """Number of the rule bank in the database."""
    name: str
    """Name of the rule bank."""
    state: State
    """State of the bank; only a `ready` bank can be used."""
    hash: str | None
    """SHA-256 of graph, miner, limits and all rules in order; null until the bank is ready."""
    graph: str | None
    """Graph that the bank was mined from; null for an imported bank."""
    graph_hash: str | None
    """Hash of this graph; null for an imported bank without one."""
    miner: Miner
    """The miner."""
    limits: dict[str, Any]
    """Limits of the miner, including defaults; empty for an imported bank."""
    relations: int | None
    """Number of mined head relations; null for an imported bank."""
    rules: int
    """Number of rules."""
    job: str | None
    """Id of the mining job; null for an imported bank."""
    reason: str | None
    """Why the bank has no rules, and how to continue; null if there is no problem."""
    created_at: datetime
    """Time of the request."""
    sealed_at: datetime | None
    """Time at which the bank became ready; null before."""
    project: str | None = None
    """Project that it belongs to; null: everybody sees it."""


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
        NotFound: it does not exist.
    """
    return RuleBank(**await load_named(connection, ONE, "rules", name))


async def find_bank(connection: AsyncConnection, name: str) -> RuleBank | None:
    """Find the bank called `name`; None if it does not exist."""
    row = (await connection.execute(ONE, {"name": name})).mappings().first()
    return None if row is None else RuleBank(**row)


async def list_banks(database: Database, limit: int, cursor: str | None = None) -> Page[RuleBank]:
    """List banks, newest first."""
    return await load_page(database, LIST, SCOPE, limit, cursor, lambda row: RuleBank(**row))


async def get_sealed_hash(connection: AsyncConnection, name: str) -> str:
    """Get the hash of the sealed bank called `name`.

    Raises:
        NotFound: it does not exist.
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
    """Yield all rules of a sealed bank in order and in batches, each read by its own statement, so that a slow
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
        NotFound: it does not exist.
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


BANK = text("""
    SELECT m.digest AS hash, b.id, b.miner FROM models m JOIN rule_banks b ON encode(b.hash, 'hex') = m.digest
    WHERE m.id = :model ORDER BY b.id LIMIT 1""")
# A rule's bytes are JSON: the relations of its body and its support have no columns.
RELATIONS = text("""
    SELECT relation, bool_or(is_head) AS is_head FROM rules r CROSS JOIN LATERAL (
        SELECT r.head AS relation, true AS is_head
        UNION ALL SELECT atom ->> 0, false
        FROM json_array_elements(CAST(convert_from(r.rule, 'UTF8') AS json) -> 'body') b(atom)) named
    WHERE bank_id = :bank GROUP BY relation ORDER BY relation""")
OF_HEADS = text("""
    SELECT ordinal, rule FROM rules WHERE bank_id = :bank AND head = ANY(:heads) AND certainty >= :least""")
NUMBERS = text("""
    SELECT ordinal FROM rules WHERE bank_id = :bank AND certainty >= :least
        AND CAST(CAST(convert_from(rule, 'UTF8') AS json) ->> 'support' AS bigint) >= :support ORDER BY ordinal""")
BY_NUMBER = text("SELECT ordinal, rule FROM rules WHERE bank_id = :bank AND ordinal = ANY(:numbers)")
PHRASES = text("SELECT phrases FROM graphs WHERE phrases_hash = :hash ORDER BY id LIMIT 1")


class PinnedBank(NamedTuple):
    """The bank to which a job is pinned."""

    hash: str
    id: int
    miner: Miner


async def find_pinned_bank(connection: AsyncConnection, model: int) -> PinnedBank | None:
    """Find the bank of a model row, the first one if several are equal; None if it was deleted."""
    row = (await connection.execute(BANK, {"model": model})).first()
    return None if row is None else PinnedBank(hash=row.hash, id=row.id, miner=row.miner)


async def list_relations(connection: AsyncConnection, bank: int) -> dict[str, bool]:
    """List the relations in the bank's rules, sorted by name, with whether a rule leads to the relation."""
    return {row.relation: row.is_head for row in await connection.execute(RELATIONS, {"bank": bank})}


async def stream_rules_for_heads(
    connection: AsyncConnection, bank: int, relations: Collection[str], least: float
) -> AsyncIterator[list[NumberedRule]]:
    """Yield batches of rules that lead to one of the relations with at least this certainty, in no order."""
    values = {"bank": bank, "heads": sorted(relations), "least": least}
    async with connection.stream(OF_HEADS, values, execution_options={"yield_per": BATCH}) as found:
        async for rows in found.partitions(BATCH):
            yield [_decode_rule(row.ordinal, row.rule) for row in rows]


async def list_rule_numbers(connection: AsyncConnection, bank: int, least: float, support: int) -> Sequence[int]:
    """List the numbers of all rules with at least this certainty and support, in order."""
    values = {"bank": bank, "least": least, "support": support}
    return array("i", (await connection.execute(NUMBERS, values)).scalars().all())


async def find_rules_by_number(
    connection: AsyncConnection, bank: int, wanted: Collection[int]
) -> dict[int, NumberedRule]:
    """Find the rules with these numbers; missing numbers are left out."""
    rows = await connection.execute(BY_NUMBER, {"bank": bank, "numbers": sorted(wanted)})
    return {row.ordinal: _decode_rule(row.ordinal, row.rule) for row in rows}


async def find_phrases(connection: AsyncConnection, hash_: str) -> Mapping[str, Phrase] | None:
    """Find the relation phrases with this hash (hex); None if no graph has them any more."""
    found = (await connection.execute(PHRASES, {"hash": bytes.fromhex(hash_)})).scalar()
    return None if found is None else msgspec.convert(found, dict[str, Phrase])


def _decode_rule(number: int, raw: bytes) -> NumberedRule:
    return NumberedRule(number, msgspec.json.decode(raw, type=Rule))


HEADS = text("""
    SELECT head AS relation, count(*) AS rules, max(certainty) AS best FROM rules WHERE bank_id = :bank
    GROUP BY head ORDER BY count(*) DESC, head LIMIT 500""")
ROWS = text("SELECT id FROM models WHERE backend = 'rules' AND digest = :hash")


class HeadRules(msgspec.Struct, frozen=True, kw_only=True):
    """Number of rules that lead to a relation."""

    relation: str
    """Name of the relation."""
    rules: int
    """Number of rules."""
    best: float
    """Certainty of the most certain rule: its PCA confidence if it has one, or else its standard confidence."""


class RuleBankDetails(RuleBank, frozen=True, kw_only=True):
    """A bank with its head relations and jobs."""

    heads: list[HeadRules]
    """The 500 relations with the most rules."""
    followed_by: list[ModelJob]
    """The newest jobs that use the bank's content."""


async def load_details(connection: AsyncConnection, name: str) -> RuleBankDetails:
    """Load the bank called `name` with its details.

    Raises:
        NotFound: it does not exist.
    """
    bank = await get_bank(connection, name)
    heads = (await connection.execute(HEADS, {"bank": bank.id})).mappings()
    ids = (await connection.execute(ROWS, {"hash": bank.hash})).scalars().all() if bank.hash else []
    return RuleBankDetails(
        heads=[HeadRules(**row) for row in heads],
        followed_by=await devices.list_jobs_naming(connection, ids) if ids else [],
        **msgspec.structs.asdict(bank),
    )


Order = Literal["bank", "confidence"]
"""`bank` is the bank's own order; `confidence` lists the most certain rules first."""
# Support does not have its own column: it is part of the rule's JSON.
CHOSEN = """
    r.bank_id = :bank AND r.head = COALESCE(CAST(:head AS text), r.head) AND r.certainty >= :least
        AND (CAST(:support AS bigint) <= 1
            OR CAST(CAST(convert_from(r.rule, 'UTF8') AS json) ->> 'support' AS bigint) >= :support)"""
NUMBERED = "SELECT r.ordinal, r.rule FROM rules r"
IN_ORDER = text(f"{NUMBERED} WHERE {CHOSEN} AND r.ordinal > :after ORDER BY r.ordinal LIMIT :n")
BY_CERTAINTY = text(f"""{NUMBERED} LEFT JOIN rules a ON a.bank_id = r.bank_id AND a.ordinal = :after
    WHERE {CHOSEN} AND (a.ordinal IS NULL OR (r.certainty, -r.ordinal) < (a.certainty, -a.ordinal))
    ORDER BY r.certainty DESC, r.ordinal LIMIT :n""")


class RuleSelection(NamedTuple):
    """Filters and order of a list of rules."""

    head: str | None = None
    """Only rules that lead to this relation; None lists all."""
    least: float = 0.0
    """Lowest certainty: PCA confidence if there is one, otherwise standard confidence."""
    support: int = 1
    order: Order = "bank"


async def list_rules(
    connection: AsyncConnection, name: str, chosen: RuleSelection, limit: int, cursor: str | None
) -> Page[Rule]:
    """List the selected rules of the bank.

    Raises:
        BadRequest: the cursor belongs to another list.
        NotFound: the bank does not exist.
    """
    filters = {name: None if value is None else str(value) for name, value in chosen._asdict().items()}
    scope = cursor_scope("rules of", bank=name, **filters)
    after = decode_cursor(cursor, scope, 1)[0] if cursor else -1
    values = {
        "bank": (await get_bank(connection, name)).id, "after": after, "head": chosen.head,
        "least": chosen.least, "support": chosen.support,
        "n": limit + 1,
    }  # fmt: skip
    statement = BY_CERTAINTY if chosen.order == "confidence" else IN_ORDER
    rows = (await connection.execute(statement, values)).all()
    found = [msgspec.json.decode(row.rule, type=Rule) for row in rows]
    return make_page(found, limit, scope, *(row.ordinal for row in rows[:limit][-1:]))
