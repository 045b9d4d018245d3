"""Mine rules: one sample per relation, each stored when it is found, and a bank that is sealed at the end."""

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, Invalid, TooLarge
from mathrag.messages import make_hint
from shared import canonical
from shared.calls import Amie, Mining
from shared.params import Params
from shared.pipelines.mine_rules import MINE_RULES
from shared.replies import Mined, Rule
from shared.runtime import lifecycle
from shared.runtime.parameters import find_unknown_field, split_message
from shared.runtime.submit import Submission, draft_and_insert
from shared.settings import Settings, Workers
from shared.storage import graphs, rules
from shared.storage.database import Database, check_name, sql
from shared.storage.datasets import provide_unlisted
from shared.storage.graphs import StoredGraph, count_relations
from shared.storage.rules import RuleBank, miner_of

# Mine the rules of a graph: start a job with one sample per head relation, whose replies become a rule bank.
#
# The relations are the questions of an unlisted dataset, the largest first, so that no process is left with a large one
# at the end. Calls are shared, so mining a bank again computes only what is missing.

MIB = 1 << 20
SELECT_JOB_ID = text("SELECT id FROM jobs WHERE public_id = :job")


class BankRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request for a rule bank."""

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
        words, at = split_message(error)
        if (unknown := find_unknown_field(words)) is not None:
            limits = next(each for each in Mining.__args__ if each.__struct_config__.tag == values.get("miner"))
            known = limits.__struct_fields__
            hint = make_hint(unknown, known, f"it has {', '.join(known)}")
            raise Invalid(f"`mining.{unknown}`: the miner {values['miner']} has no such limit", hint=hint) from error
        miners = ", ".join(str(each.__struct_config__.tag) for each in Mining.__args__)
        which = f"the miners are {miners}" if "miner" in str(error) else None
        path = f"mining.{at}" if at else "mining"
        raise Invalid(f"`{path}`: {words[:1].lower()}{words[1:]}", hint=which) from error
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
            f"`graph`: the facts of {graph.name!r} have no times, but the miner {miner_of(asked.mining)!r} needs them",
            hint="use the miner amie, or create the graph from facts with times",
        )
    memory_mib = _check_memory(graph, asked.mining, settings.workers)
    async with database.transaction() as connection:
        sizes = await count_relations(connection, graph.id)
    least = asked.mining.min_head_facts
    heads = [relation for relation, facts in sizes if facts >= least]
    if not heads:
        relation, facts = sizes[0]
        raise Invalid(
            f"`mining.min_head_facts`: no relation has {least} facts; the largest, {relation!r}, has {facts}",
            hint=f"for so small a graph: --min-head-facts {facts} or lower",
        )
    dataset = await provide_unlisted(database, "relations", heads)
    async with database.transaction() as connection:
        await connection.execute(rules.LOCK)
        new = await _start(connection, settings, asked, graph, dataset, len(heads))
        bank = await rules.get_bank(connection, asked.name)
    return MiningStart(bank=bank, new=new, memory_mib=memory_mib)


async def _start(
    connection: AsyncConnection, settings: Settings, asked: BankRequest, graph: StoredGraph, dataset: str, heads: int
) -> bool:
    """Insert the job and the bank if they are needed; return whether they were."""
    known = await rules.find_bank(connection, asked.name)
    limits = msgspec.json.decode(canonical.encode(asked.mining))
    if known is not None and (known.graph_hash != graph.hash or known.limits != limits):
        raise Conflict(
            f"`name`: rule bank {asked.name!r} exists already, with another graph or other limits",
            hint=f"choose another name; `mathrag rules show {asked.name}` shows that bank",
        )
    if known is not None and known.state in ("mining", "ready"):
        return False
    name = await lifecycle.reserve_next(connection, f"mine-{asked.name}"[: lifecycle.LONGEST], ())
    submission = Submission(
        name=name,
        dataset=dataset,
        pipeline=MINE_RULES,
        params=Params(mining=asked.mining),
        metadata={"rules": asked.name, "graph": graph.name},
        graph=graph.hash,
        submitted_by=asked.submitted_by,
    )
    (public_id,) = await draft_and_insert(connection, settings, [submission])
    job = int((await connection.execute(SELECT_JOB_ID, {"job": public_id})).scalar_one())
    if known is not None:
        await rules.restart_mining(connection, asked.name, job)
    else:
        await rules.insert_mining(connection, asked.name, graph.id, graph.hash, asked.mining, heads, job)
    return True


def _check_memory(graph: StoredGraph, mining: Mining, workers: Workers) -> int:
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


# Seal rule banks: when a mining job has ended, its replies become the bank in one transaction.
#
# A kill in between leaves nothing behind, and sealing is repeated. Relations are in the dataset's order and rules in
# the miner's, so equal graphs and limits give byte-identical banks.

DUE = text("""
    SELECT b.name FROM rule_banks b LEFT JOIN jobs j ON j.id = b.job_id
    WHERE b.state = 'mining' AND (j.id IS NULL OR j.ended_at IS NOT NULL) ORDER BY b.id""")
# A transaction that holds the row is sealing the bank.
TAKE = text("""
    SELECT b.id, b.job_id FROM rule_banks b WHERE b.name = :name AND b.state = 'mining' FOR UPDATE OF b SKIP LOCKED""")
SELECT_JOB_STATE = text("SELECT state, reason FROM jobs WHERE id = :job")
FAILED = sql("""
    SELECT i.question AS relation, s.failure, s.detail, count(*) OVER () AS failed FROM samples s
    JOIN jobs j ON j.id = s.job_id JOIN items i ON {ASKED_BY_SAMPLE}
    WHERE s.job_id = :job AND s.state = {FAILED} ORDER BY s.ordinal LIMIT 1""")
REPLY = sql("""
    SELECT s.ordinal, a.reply FROM samples s JOIN steps t ON t.sample_id = s.id
    JOIN attempts a ON {ACCEPTED_FOR} t.call_id
    WHERE s.job_id = :job AND s.kind = 'item' AND s.ordinal > :after ORDER BY s.ordinal LIMIT 1""")
AGAIN = "mine it again with the same command; finished work is kept"


async def list_due_banks(database: Database) -> list[str]:
    """List the names of banks whose mining jobs have ended."""
    return await database.column(DUE, {})


async def seal_bank(database: Database, name: str) -> None:
    """Fill the bank with the rules that its job has found, or record why it has none."""
    async with database.transaction() as connection:
        taken = (await connection.execute(TAKE, {"name": name})).first()
        if taken is None:
            return
        job = (await connection.execute(SELECT_JOB_STATE, {"job": taken.job_id})).first()
        if job is None:
            await rules.end_without_rules(connection, taken.id, "failed", f"the job that mined it was purged; {AGAIN}")
        elif job.state == "cancelled":
            await rules.end_without_rules(connection, taken.id, "cancelled", f"its job was cancelled; {AGAIN}")
        elif failed := (await connection.execute(FAILED, {"job": taken.job_id})).first():
            others = f", as could {failed.failed - 1} more" if failed.failed > 1 else ""
            reason = (
                f"relation {failed.relation!r} could not be mined{others}: {failed.failure}: {failed.detail}; {AGAIN}"
            )
            await rules.end_without_rules(connection, taken.id, "failed", reason)
        else:
            bank = await rules.get_bank(connection, name)
            await rules.store_rules(connection, bank, _read_mined_rules(connection, taken.job_id))


async def _read_mined_rules(connection: AsyncConnection, job: int) -> AsyncIterator[Sequence[Rule]]:
    """Yield the rules relation by relation, with a single reply in memory at a time."""
    after = -1
    while found := (await connection.execute(REPLY, {"job": job, "after": after})).first():
        yield msgspec.json.decode(found.reply, type=Mined).rules
        after = found.ordinal
