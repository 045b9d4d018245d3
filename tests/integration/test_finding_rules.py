"""Calls that find rules, over a bank in the database."""

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import event

from services.judge.executors import NO_BANK, NO_PHRASES, RulesExecutor
from shared.calls import FindRules, RuleChoice
from shared.params import Params
from shared.pipelines.binding import Binding, Pin, bind
from shared.replies import Atom, FoundRules, Reply
from shared.runtime import pins
from shared.runtime.queue import ClaimedCall
from shared.storage import rules as stored_rules
from shared.storage.database import Database
from tests.integration.following import BANK, PHRASES, add_bank, add_graph, rule
from tests.integration.scene import furnish

pytestmark = pytest.mark.anyio
NONE = FoundRules(relation=None)


async def pin(database: Database, bank: str) -> Pin:
    async with database.transaction() as connection:
        return await pins.pin_identity(connection, pins.bank_identity(bank))


def look(relation: str = "", question: str = "", **fields: Any) -> FindRules:
    choice = {name: fields.pop(name) for name in ("confidence", "support", "order", "seed") if name in fields}
    return FindRules(
        relation=relation, question=question, choice=RuleChoice(**{"most": fields.pop("most", 20), **choice}), **fields
    )


async def find(executor: RulesExecutor, pinned: Pin, *calls: FindRules) -> list[Reply]:
    binding = Binding(pins={"rules": pinned}, params=Params())
    claimed = [
        ClaimedCall(id=number, key=b"", role="rules", model_id=pinned.model_id, request=bind(call, binding, 0).body)
        for number, call in enumerate(calls)
    ]
    return [answer.reply async for answer in executor.run(claimed, None)]


def numbers(reply: Reply) -> list[int]:
    assert isinstance(reply, FoundRules)
    return [found.number for found in reply.rules]


@pytest.fixture
async def bank(database: Database) -> Pin:
    return await pin(database, await add_bank(database))


async def test_rules_of_a_relation_come_in_order_with_the_words_for_what_they_name(
    database: Database, bank: Pin
) -> None:
    (reply,) = await find(RulesExecutor(database), bank, look("Make_a_visit"))
    assert isinstance(reply, FoundRules)
    assert (reply.relation, numbers(reply)) == ("Make_a_visit", [2, 1, 0])
    assert [found.rule for found in reply.rules] == [BANK[2], BANK[1], BANK[0]]
    assert reply.phrases == {
        "Consult": "consult", "Like": "like", "Make_a_visit": "make a visit", "Own": "own",
    }  # fmt: skip


async def test_a_chunk_is_answered_call_by_call(database: Database, bank: Pin) -> None:
    found = await find(
        RulesExecutor(database), bank,
        look("Consult"), look("Like"), look(question="Whom did Ann CONSULT?"), look(question="Who owns it? Own!"),
        look(question="Why?"), look(), look("Make_a_visit", most=1),
        look("Make_a_visit", confidence=0.9, order="worst"),
    )  # fmt: skip
    assert [numbers(reply) for reply in found] == [[3], [], [3], [], [], [], [2], [1, 2]]
    relations = [reply.relation for reply in found if isinstance(reply, FoundRules)]
    assert relations == ["Consult", "Like", "Consult", "Own", None, None, "Make_a_visit", "Make_a_visit"]
    assert found[4] == NONE
    assert found[5] == FoundRules(relation=None, phrases={"Consult": "consult", "Make_a_visit": "make a visit"})


async def test_a_graphs_phrases_name_relations_in_either_direction(database: Database, bank: Pin) -> None:
    await furnish(database)
    phrases = await add_graph(database)
    calls = [
        look(question=asked, phrases=phrases)
        for asked in ("Did Ann travel to Cuba?", "Who did host Ann?", "Make a visit!")
    ]
    first, second, third = await find(RulesExecutor(database), bank, *calls)
    assert numbers(first) == numbers(second) == [2, 1, 0]
    assert third == NONE
    assert isinstance(first, FoundRules)
    assert first.phrases["Make_a_visit"] == PHRASES["Make_a_visit"].phrase


async def test_temporal_rules_serve_the_end_that_is_asked_for(database: Database) -> None:
    rules = [rule(Atom("r", 0, 1), Atom("b", 0, 1)), rule(Atom("r", 1, 0), Atom("b", 0, 1))]
    temporal = await pin(database, await add_bank(database, rules, "t", "tlogic"))
    static = await pin(database, await add_bank(database, rules, "s"))
    calls = [look("r", side="object"), look("r", side="subject"), look("r")]
    executor = RulesExecutor(database)
    assert [numbers(reply) for reply in await find(executor, temporal, *calls)] == [[0], [1], [0, 1]]
    assert [numbers(reply) for reply in await find(executor, static, *calls)] == [[0, 1]] * 3


async def test_the_same_call_has_the_same_reply_whoever_answers_it_and_beside_whatever(
    database: Database, bank: Pin
) -> None:
    calls = [
        look(relation, order=order, seed=seed, confidence=confidence, support=2)
        for relation in ("Make_a_visit", "Consult")
        for order in ("best", "worst", "random")
        for seed in (1, 2)
        for confidence in (0.0, 0.5)
    ]
    executor = RulesExecutor(database)
    forward, backward = await find(executor, bank, *calls), await find(RulesExecutor(database), bank, *calls[::-1])
    assert forward == backward[::-1] == await find(executor, bank, *calls)
    assert forward == [(await find(RulesExecutor(database), bank, call))[0] for call in calls]


async def test_random_rules_are_of_the_whole_bank_and_keep_the_thresholds(database: Database, bank: Pin) -> None:
    calls = [look("Make_a_visit", order="random", seed=seed, most=2) for seed in range(30)]
    drawn = [numbers(reply) for reply in await find(RulesExecutor(database), bank, *calls)]
    assert {number for found in drawn for number in found} == {0, 1, 2, 3}
    assert all(len(set(found)) == 2 for found in drawn)
    (reply,) = await find(RulesExecutor(database), bank, look("Like", order="random", support=2, confidence=0.5))
    assert sorted(numbers(reply)) == [1, 2]


async def test_a_bank_that_is_gone_or_phrases_that_are_gone_are_a_passing_failure(
    database: Database, bank: Pin
) -> None:
    executor = RulesExecutor(database)
    (missing, found) = await find(executor, bank, look("Consult", phrases="ab" * 32), look("Consult"))
    assert (missing, numbers(found)) == (NO_PHRASES, [3])
    await stored_rules.delete(database, "bank")
    assert await find(executor, bank, look("Consult"), look()) == [NO_BANK, NO_BANK]
    assert all("requeue" in failure.detail for failure in (NO_BANK, NO_PHRASES))


async def test_a_chunk_takes_few_statements_however_many_calls_it_has(database: Database, bank: Pin) -> None:
    seen: list[str] = []

    def note(*arguments: Any) -> None:
        seen.append(arguments[2])

    executor = RulesExecutor(database)
    engine = database.engine.sync_engine
    event.listen(engine, "before_cursor_execute", note)
    try:
        counts = []
        for calls in (_named(50), _named(50), _random(50)):
            seen.clear()
            await find(executor, bank, *calls)
            counts.append(len([statement for statement in seen if "rule" in statement]))
    finally:
        event.remove(engine, "before_cursor_execute", note)
    assert counts == [3, 1, 3]


def _named(count: int) -> Sequence[FindRules]:
    return [look(("Consult", "Make_a_visit")[number % 2], most=number % 5) for number in range(count)]


def _random(count: int) -> Sequence[FindRules]:
    return [look("Consult", order="random", seed=number, most=2) for number in range(count)]
