"""Mine the rules of a graph: start a job with one sample per head relation, whose replies become a rule bank.

The relations are the questions of an unlisted dataset, the largest first, so that no process is left with a large one
at the end. Calls are shared, so mining a bank again computes only what is missing.
"""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared import suggestions
from shared.contracts import canonical
from shared.contracts.datasets import DatasetItem
from shared.contracts.mining import Amie, Mining
from shared.contracts.params import Params
from shared.contracts.samples import Item
from shared.errors import Conflict, Invalid, TooLarge
from shared.pipelines.mine_rules import MINE_RULES
from shared.runtime import job_names
from shared.runtime.drafting import Drafting
from shared.runtime.submission import Submission
from shared.runtime.submit import insert
from shared.settings import Settings, Workers
from shared.storage import graphs, rule_banks
from shared.storage.database import Database
from shared.storage.graphs import StoredGraph
from shared.storage.names import check_name
from shared.storage.relation_sizes import count_relations
from shared.storage.rule_banks import RuleBank, miner_of

MIB = 1 << 20
# Names that users choose cannot contain `:`, so this prefix never collides with theirs.
PREFIX = "relations:"
INSERT_DATASET = text("""
    INSERT INTO datasets (name, hash, items, online) VALUES (:name, :hash, :items, true)
    ON CONFLICT (name) DO NOTHING RETURNING id""")
INSERT_ITEMS = text("""
    INSERT INTO items (dataset_id, ordinal, hash, question, alternatives)
    SELECT :dataset, ordinal - 1, hash, question, 0
    FROM unnest(CAST(:hashes AS bytea[]), CAST(:questions AS text[])) WITH ORDINALITY u(hash, question, ordinal)""")
JOB = text("SELECT id FROM jobs WHERE public_id = :job")
_AT = re.compile(r"^(?P<words>.*?)(?: - at `\$\.?(?P<path>[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(?P<name>[^`]*)`")


class BankRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A rule bank as it is requested."""

    name: str
    graph: str
    mining: Mining
    submitted_by: str | None = None
    """Name of the caller's key, if keys are asked for."""


class MiningStart(msgspec.Struct, frozen=True, kw_only=True):
    """The bank, and whether a new job mines it."""

    bank: RuleBank
    new: bool
    memory_mib: int
    """Upper bound of the memory of all mining processes of one worker."""


def parse_mining(values: Mapping[str, Any]) -> Mining:
    """Parse a miner and its limits as users write them.

    Raises:
        Invalid: an unknown miner or limit, or a value out of range; the message names it.
    """
    try:
        mining: Mining = msgspec.convert(values, Mining)
    except msgspec.ValidationError as error:
        raise _to_invalid(str(error), values) from error
    return mining


async def mine(database: Database, settings: Settings, asked: BankRequest) -> MiningStart:
    """Return the requested bank, or start a job that mines it.

    Raises:
        NotFound: no such graph.
        Invalid: the name cannot be used, the miner needs times and the graph has none, or no relation is large enough.
        TooLarge: mining might take more memory than the operator allows.
        Conflict: a bank with this name has another graph or other limits.
    """
    check_name(asked.name)
    graph = await graphs.get(database, asked.graph)
    if graph.time_unit is None and not isinstance(asked.mining, Amie):
        raise Invalid(
            f"`graph`: the facts of {graph.name!r} have no times, and {miner_of(asked.mining)!r} follows times",
            hint="use the miner amie, or create the graph from facts with times",
        )
    memory_mib = _memory_mib(graph, asked.mining, settings.workers)
    async with database.transaction() as connection:
        sizes = await count_relations(connection, graph.id)
    heads = _head_relations(sizes, asked.mining.min_head_facts)
    dataset = await _provide_dataset(database, heads)
    async with database.transaction() as connection:
        await connection.execute(rule_banks.LOCK)
        new = await _start(connection, settings, asked, graph, dataset, len(heads))
        bank = await rule_banks.get_bank(connection, asked.name)
    return MiningStart(bank=bank, new=new, memory_mib=memory_mib)


async def _start(
    connection: AsyncConnection, settings: Settings, asked: BankRequest, graph: StoredGraph, dataset: str, heads: int
) -> bool:
    """Insert the job and the bank if they are needed; return whether they were."""
    known = await rule_banks.find_bank(connection, asked.name)
    if known is not None and not _is_same_request(known, asked, graph):
        raise Conflict(
            f"`name`: rule bank {asked.name!r} exists already, with another graph or other limits",
            hint=f"choose another name; `mathrag rules show {asked.name}` shows that bank",
        )
    if known is not None and known.state in ("mining", "ready"):
        return False
    job = await _submit(connection, settings, asked, graph, dataset)
    if known is not None:
        await rule_banks.restart_mining(connection, asked.name, job)
    else:
        await rule_banks.insert_mining(connection, asked.name, graph.id, graph.hash, asked.mining, heads, job)
    return True


def _is_same_request(bank: RuleBank, asked: BankRequest, graph: StoredGraph) -> bool:
    limits = msgspec.json.decode(canonical.encode(asked.mining))
    return bank.graph_hash == graph.hash and bank.limits == limits


async def _submit(
    connection: AsyncConnection, settings: Settings, asked: BankRequest, graph: StoredGraph, dataset: str
) -> int:
    name = await job_names.reserve_next(connection, f"mine-{asked.name}"[: job_names.LONGEST], ())
    submission = Submission(
        name=name,
        dataset=dataset,
        pipeline=MINE_RULES,
        params=Params(mining=asked.mining),
        metadata={"rules": asked.name, "graph": graph.name},
        graph=graph.hash,
        submitted_by=asked.submitted_by,
    )
    draft = await Drafting(connection, settings).draft(submission)
    (job,) = await insert(connection, settings, [draft])
    return int((await connection.execute(JOB, {"job": job})).scalar_one())


def _memory_mib(graph: StoredGraph, mining: Mining, workers: Workers) -> int:
    from shared.rules.miners import memory_bytes  # with the miners come numpy and scipy

    each = math.ceil(memory_bytes(graph.facts, graph.entities, graph.relations, mining) / MIB)
    total = each * workers.miners
    if total > workers.mining_mib:
        raise TooLarge(
            f"mining {graph.name!r} ({graph.facts} facts) may take {total} MiB: {each} MiB for each of"
            f" `workers.miners` ({workers.miners}) processes; `workers.mining_mib` allows {workers.mining_mib}",
            hint="raise `workers.mining_mib`, or lower `workers.miners`, and restart the judge workers",
        )
    return total


def _head_relations(sizes: Sequence[tuple[str, int]], least: int) -> list[str]:
    heads = [relation for relation, facts in sizes if facts >= least]
    if not heads:
        relation, facts = sizes[0]
        raise Invalid(
            f"`mining.min_head_facts`: no relation has {least} facts; the largest, {relation!r}, has {facts}",
            hint=f"for so small a graph: --min-head-facts {facts} or lower",
        )
    return heads


async def _provide_dataset(database: Database, relations: Sequence[str]) -> str:
    """Create the dataset of these relations, in this order, unless it exists; return its name."""
    content = hashlib.sha256()
    for relation in relations:
        content.update(canonical.digest(_item(relation)))
    name = f"{PREFIX}{content.hexdigest()[:16]}"
    async with database.transaction() as connection:
        values = {"name": name, "hash": content.digest(), "items": len(relations)}
        created = (await connection.execute(INSERT_DATASET, values)).scalar()
        if created is not None:
            hashes = [bytes.fromhex(Item(ordinal=0, question=relation).hash) for relation in relations]
            rows = {"dataset": created, "hashes": hashes, "questions": list(relations)}
            await connection.execute(INSERT_ITEMS, rows)
    return name


def _item(relation: str) -> DatasetItem:
    """Return the item that an upload of the relation as a question would have, for an equal hash."""
    return DatasetItem(question=relation, gold=None, gold_documents=None, subject=None, level=None, custom_id=None)


def _to_invalid(message: str, values: Mapping[str, Any]) -> Invalid:
    """Convert msgspec's message ("… - at `$.min_support`") to one that names `mining.min_support`."""
    found = _AT.match(message)
    words, at = (found["words"], found["path"]) if found else (message, None)
    path = f"mining.{at}" if at else "mining"
    if unknown := _UNKNOWN.match(words):
        limits = next(each for each in Mining.__args__ if each.__struct_config__.tag == values.get("miner"))
        known = ", ".join(limits.__struct_fields__)
        hint = suggestions.make_hint(unknown["name"], limits.__struct_fields__, f"it has {known}")
        return Invalid(f"`mining.{unknown['name']}`: the miner {values['miner']} has no such limit", hint=hint)
    miners = ", ".join(str(each.__struct_config__.tag) for each in Mining.__args__)
    which = f"the miners are {miners}" if "miner" in message else None
    return Invalid(f"`{path}`: {words[:1].lower()}{words[1:]}", hint=which)
