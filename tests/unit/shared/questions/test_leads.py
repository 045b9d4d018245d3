"""Rules that lead from a question to its answers: each form of rule, the order of times, and the bounds."""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.questions.items import ALWAYS, DOCUMENTS, LOOKED, RULES, Choice, Facts, Leads, Side, names_of
from shared.replies import Atom, Miner, Rule, Term
from shared.rules.graph import Graph
from shared.samples import DatasetItem, Lead
from tests.unit.shared.questions.toys import bank_of, graph_of, rule_of, set_of

KIN = graph_of(
    ("ann", "child", "bob"), ("bob", "child", "cid"), ("dan", "child", "ann"), ("cid", "parent", "bob"),
    ("eve", "likes", "cid"), ("eve", "likes", "bob"), ("ann", "old", "yes"), ("bob", "old", "no"), ("x", "sees", "y"),
)  # fmt: skip
EVENTS = graph_of(
    ("a", "met", "b", 1), ("a", "met", "b", 4), ("b", "called", "c", 2), ("b", "called", "c", 4), ("c", "sued", "a", 4),
    ("a", "met", "b", 7), ("x", "sees", "y", 0),
)  # fmt: skip
GRANDCHILD = rule_of(Atom("sees", 0, 1), Atom("child", 0, 2), Atom("child", 2, 1))


def found(
    graph: Graph, question: tuple[str, str, str, int] | tuple[str, str, str], side: Side, *rules: Rule,
    miner: Miner = "amie",
) -> DatasetItem:  # fmt: skip
    bank = bank_of(*rules, miner=miner)
    (item,) = set_of(graph, [question], Choice(sides=(side,)), bank).items()
    return item


def leads(item: DatasetItem) -> dict[int, Sequence[str]]:
    assert item.query is not None
    return {lead.rule: lead.documents for lead in item.query.leads}


@pytest.mark.parametrize(
    ("body", "documents"),
    [
        ((Atom("child", 0, 2), Atom("child", 2, 1)), ("0", "1")),
        ((Atom("child", 0, 2), Atom("parent", 1, 2)), ("0", "3")),
        ((Atom("child", 2, 1), Atom("child", 0, 2)), ("0", "1")),
        ((Atom("child", 0, 2), Atom("likes", 3, 2), Atom("likes", 3, 1)), ("0", "4", "5")),
        ((Atom("child", "bob", 1), Atom("old", 0, "yes")), ("1", "6")),
        ((Atom("old", 0, "no"), Atom("child", 0, 1)), None),
        ((Atom("child", 0, 2), Atom("child", 2, 0)), None),
        ((Atom("child", 0, 1),), None),
        ((Atom("unheard", 0, 1),), None),
        ((Atom("likes", 2, 3), Atom("child", 0, 4)), None),
    ],
)
def test_the_facts_of_a_body_lead_to_the_answer(body: tuple[Atom, ...], documents: Sequence[str] | None) -> None:
    item = found(KIN, ("ann", "sees", "cid"), "object", rule_of(Atom("sees", 0, 1), *body))
    assert leads(item) == ({} if documents is None else {0: documents})
    assert item.gold_documents == (dict.fromkeys(documents, 1) if documents else None)


def test_a_static_rule_answers_for_both_ends_and_names_its_bank() -> None:
    item = found(KIN, ("ann", "sees", "cid"), "subject", GRANDCHILD)
    assert item.query is not None
    assert (leads(item), item.query.bank) == ({0: ("0", "1")}, "ab12")


@pytest.mark.parametrize(
    ("head", "side", "leading"),
    [
        (Atom("sees", 0, "cid"), "object", True),
        (Atom("sees", 0, "bob"), "object", False),
        (Atom("sees", "ann", 1), "object", True),
        (Atom("sees", "eve", 1), "object", False),
        (Atom("sees", 0, "cid"), "subject", True),
    ],
)
def test_a_constant_in_the_head_is_the_known_entity_or_an_answer(head: Atom, side: Side, *, leading: bool) -> None:
    body = Atom("old", 0, "yes") if 0 in (head.subject, head.object) else Atom("likes", 2, 1)
    item = found(KIN, ("ann", "sees", "cid"), side, rule_of(head, body))
    assert (0 in leads(item)) is leading


CHAIN = Atom("met", 0, 2), Atom("called", 2, 1)


@pytest.mark.parametrize(
    ("time", "head", "body", "documents"),
    [
        (9, Atom("sees", 0, 1), CHAIN, ("0", "1", "2", "3")),
        (4, Atom("sees", 0, 1), CHAIN, ("0", "2")),
        (2, Atom("sees", 0, 1), CHAIN, None),
        (9, Atom("sees", 0, 1), (*CHAIN, Atom("sued", 1, 0)), ("0", "1", "2", "3", "4")),
        (9, Atom("sees", 0, 1), (Atom("sued", 1, 0), *CHAIN), ("1", "3", "4")),
        (9, Atom("sees", 1, 0), CHAIN, None),
    ],
)
def test_atoms_of_a_temporal_rule_hold_one_after_the_other_before_the_question(
    time: int, head: Atom, body: tuple[Atom, ...], documents: Sequence[str] | None
) -> None:
    item = found(EVENTS, ("a", "sees", "c", time), "object", rule_of(head, *body), miner="tlogic")
    assert leads(item) == ({} if documents is None else {0: documents})


def test_a_temporal_rule_predicts_subjects_by_its_inverse_head() -> None:
    rule = rule_of(Atom("sees", 1, 0), Atom("called", 2, 0), Atom("met", 1, 2))
    item = found(EVENTS, ("a", "sees", "c", 9), "subject", rule, miner="tlogic")
    assert leads(item) == {0: ("1", "2", "3", "5")}


def test_a_static_rule_knows_no_order_of_times_but_only_earlier_facts() -> None:
    rule = rule_of(Atom("sees", 0, 1), Atom("called", 2, 1), Atom("met", 0, 2))
    assert leads(found(EVENTS, ("a", "sees", "c", 3), "object", rule)) == {0: ("0", "2")}


@pytest.mark.parametrize(
    ("head", "body", "side", "documents"),
    [
        (Atom("sees", 0, "c"), Atom("met", 0, "b"), "object", ("0", "1", "5")),
        (Atom("sees", "a", 0), Atom("sued", 0, "a"), "subject", ("4",)),
        (Atom("sees", 1, "c"), Atom("met", 1, "b"), "subject", ("0", "1", "5")),
        (Atom("sees", 0, "c"), Atom("met", 0, "b"), "subject", None),
        (Atom("sees", 1, "c"), Atom("met", 1, "b"), "object", None),
        (Atom("sees", "a", "c"), Atom("met", "a", 2), "object", ("0", "1", "5")),
        (Atom("sees", "a", "c"), Atom("met", "a", 2), "subject", None),
        (Atom("sees", 0, "c"), Atom("met", 2, 3), "object", None),
    ],
)
def test_simple_rules_lead_the_way_that_their_head_is_read(
    head: Atom, body: Atom, side: Side, documents: Sequence[str] | None
) -> None:
    item = found(EVENTS, ("a", "sees", "c", 9), side, rule_of(head, body), miner="temporal-simple")
    assert leads(item) == ({} if documents is None else {0: documents})


def test_the_best_twenty_rules_lead_the_most_certain_first() -> None:
    rules = [rule_of(GRANDCHILD.head, *GRANDCHILD.body, confidence=0.1 * (number % 3)) for number in range(RULES + 5)]
    item = found(KIN, ("ann", "sees", "cid"), "object", *rules)
    expected = sorted(range(len(rules)), key=lambda number: (-(number % 3), number))[:RULES]
    assert list(leads(item)) == expected


def test_a_rule_with_ten_thousand_facts_leads_by_the_latest_twenty() -> None:
    times = range(1, 5001)
    facts = [fact for time in times for fact in (("a", "met", f"m{time}", time), (f"m{time}", "called", "c", time))]
    item = found(graph_of(*facts, ("x", "sees", "y", 0)), ("a", "sees", "c", 9999), "object",
                 rule_of(Atom("sees", 0, 1), *CHAIN), miner="tlogic")  # fmt: skip
    assert leads(item) == {0: tuple(str(fact) for fact in range(10000 - DOCUMENTS, 10000))}


@pytest.mark.parametrize(("facts", "leading"), [(LOOKED - 2, True), (LOOKED, False)])
def test_no_more_than_a_thousand_facts_are_looked_at_for_a_rule(facts: int, *, leading: bool) -> None:
    others = [fact for n in range(facts) for fact in (("a", "met", f"m{n}"), (f"k{n}", "called", "c"))]
    graph = graph_of(*others, ("a", "met", "b"), ("b", "called", "c"), ("x", "sees", "y"))
    item = found(graph, ("a", "sees", "c"), "object", rule_of(Atom("sees", 0, 1), *CHAIN))
    assert bool(leads(item)) is leading


ENTITIES, RELATIONS, TIMES = 4, 3, 4


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], Rule, int, list[int], int]:
    number = st.integers(0, ENTITIES - 1)
    fact = st.tuples(number, st.integers(0, RELATIONS - 1), number, st.integers(0, TIMES - 1))
    facts = draw(st.lists(fact, min_size=1, max_size=9, unique=True))
    body: list[Atom] = []
    used: list[Term] = [0, 1]
    for _ in range(draw(st.integers(1, 3))):
        ends = [draw(st.sampled_from(used)), draw(st.sampled_from([0, 1, 2, 3, "e0"]))]
        one, other = draw(st.permutations(ends))
        body.append(Atom(f"r{draw(st.integers(0, RELATIONS - 1))}", one, other))
        used += [term for term in ends if term not in used]
    rule = rule_of(Atom("r0", 0, 1), *draw(st.permutations(body)))
    answers = draw(st.lists(number, min_size=1, max_size=3, unique=True))
    return facts, rule, draw(number), answers, draw(st.integers(1, TIMES))


@given(cases(), st.booleans())
def test_leads_are_those_of_trying_every_fact_for_every_atom(
    case: tuple[list[tuple[int, ...]], Rule, int, list[int], int], temporal: bool
) -> None:
    facts, rule, entity, answers, before = case
    table = np.array(facts, np.int64)
    names = [f"e{number}" for number in range(ENTITIES)], [f"r{number}" for number in range(RELATIONS)]
    graph = Graph(table[:, :3].astype(np.int32), table[:, 3] if temporal else None, *names)
    if not temporal:
        before = ALWAYS
        graph = graph._replace(triples=np.unique(graph.triples, axis=0))
    made = Leads(Facts(graph), names_of(graph), [(0, rule)], temporal=temporal)
    expected = sorted(_tried(graph, rule, entity, answers, before))
    leads_found = made.of(0, "object", entity, answers, before)
    assert leads_found == ((Lead(rule=0, documents=tuple(map(str, expected))),) if expected else ())


def _tried(graph: Graph, rule: Rule, entity: int, answers: Sequence[int], before: int) -> set[int]:
    times = [0] * len(graph.triples) if graph.times is None else graph.times.tolist()
    found: set[int] = set()
    for body in product(range(len(times)), repeat=len(rule.body)):
        moments = [times[fact] for fact in body]
        if moments != sorted(moments) or max(moments) >= before:
            continue
        rows = [graph.triples[fact].tolist() for fact in body]
        said: list[tuple[Term, int]] = [(0, entity)]
        for atom, (subject, _, object_) in zip(rule.body, rows, strict=True):
            said += [(atom.subject, subject), (atom.object, object_)]
        named = all(f"r{row[1]}" == atom.relation for atom, row in zip(rule.body, rows, strict=True))
        for answer in answers if named else ():
            bound = {(term, value) for term, value in [*said, (1, answer)]} | {("e0", 0)}
            if len(bound) == len({term for term, _ in bound}):
                found |= {*body}
    return found
