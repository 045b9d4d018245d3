"""Rule banks, graphs and questions of graphs in the database, for jobs that follow rules."""

from collections.abc import AsyncIterator, Sequence

from services.judge.executors import RulesExecutor
from shared import canonical
from shared.replies import Atom, Miner, Rule
from shared.runtime.queue import AnsweredCall, ClaimedCall
from shared.runtime.worker import Lapse, Release
from shared.samples import FactQuery, Phrase
from shared.storage import rules as stored_rules
from shared.storage.database import Database
from tests.integration.scene import Answer, ScriptedExecutor, by_rule, run_sql

PHRASES = {"Make_a_visit": Phrase(relation="Make_a_visit", phrase="travel to", inverse="host")}


def rule(head: Atom, *body: Atom, support: int = 5, certainty: float = 0.5) -> Rule:
    """A rule of a standard confidence."""
    return Rule(head=head, body=body, support=support, body_size=10, confidence=certainty)


VISIT = Atom("Make_a_visit", 0, 1)
BANK = (
    rule(VISIT, Atom("Consult", 0, 1), certainty=0.4),
    rule(VISIT, Atom("Like", 0, 2), Atom("Own", 2, 1), certainty=0.9),
    rule(VISIT, Atom("Consult", 1, 0), certainty=0.9),
    rule(Atom("Consult", 0, 1), Atom("Make_a_visit", 1, 0), support=1),
)
"""Visits follow from consulting, and from liking what is owned; consulting from being visited."""


async def add_bank(
    database: Database,
    rules: Sequence[Rule] = BANK,
    name: str = "bank",
    miner: Miner = "amie",
    graph: str | None = None,
) -> str:
    """A sealed bank; its hash."""

    async def batches() -> AsyncIterator[Sequence[Rule]]:
        yield rules

    bank, _ = await stored_rules.create_imported(database, name, stored_rules.ImportOrigin(miner, graph), batches())
    assert bank.hash is not None
    return bank.hash


async def add_graph(database: Database, name: str = "docs", digest: bytes = b"g" * 32) -> str:
    """A graph without facts whose corpus is the scene's, with phrases; the hash of these."""
    phrases = canonical.encode(PHRASES)
    statement = """
        INSERT INTO graphs (name, hash, facts, entities, relations, largest, corpus_id, phrases, phrases_hash)
        SELECT :name, :hash, 0, 0, 0, '[]', id, CAST(:phrases AS json), sha256(CAST(:phrases AS bytea))
        FROM corpora WHERE name = 'docs'"""
    await run_sql(
        database, statement.replace("CAST(:phrases AS bytea)", ":raw"), name=name, hash=digest,
        phrases=phrases.decode(), raw=phrases,
    )  # fmt: skip
    return canonical.digest(PHRASES).hex()


async def ask_for(database: Database, query: FactQuery) -> None:
    """Every question of the scene asks the same of a graph."""
    await run_sql(database, "UPDATE items SET query = CAST(:query AS jsonb)", query=canonical.encode(query).decode())


class FollowingRules(ScriptedExecutor):
    """Rules are found for real, the rest is answered by rule."""

    def __init__(self, database: Database, answer: Answer = by_rule) -> None:
        super().__init__(answer)
        self.finding = RulesExecutor(database)

    def run(self, calls: Sequence[ClaimedCall], epoch: int | None) -> AsyncIterator[AnsweredCall | Lapse | Release]:
        """A chunk is of one model, and so of one role."""
        return self.finding.run(calls, epoch) if calls[0].role == "rules" else super().run(calls, epoch)
