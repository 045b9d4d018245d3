from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mathrag.errors import Invalid
from mathrag.reading import graph_paths
from shared.calls import MAX_QUESTION
from shared.ingest import facts, rule_files
from shared.questions.items import (
    ALWAYS,
    ANSWERS,
    DOCUMENTS,
    LINKS,
    LOOKED,
    RULES,
    Bank,
    Choice,
    Facts,
    Leads,
    QuestionSet,
    QuestionTemplates,
    Side,
    Wording,
    check_template,
    names_of,
)
from shared.replies import Atom, Miner, Rule, Term
from shared.rules.graph import Graph
from shared.samples import DatasetItem, FactQuery, Lead, Phrase
from shared.storage.graphs import GraphFacts
from tests.unit.datasets import DATA, needs
from tests.unit.shared.questions.toys import bank_of, by_question, golds, graph_of, rule_of, set_of

# Question sets: one question for facts that share what is known, and all true answers to it.


STATIC = graph_of(("a", "knows", "b"), ("c", "knows", "d"), ("a", "visits", "c"))
TIMED = graph_of(("a", "met", "b", 1), ("a", "met", "c", 2), ("b", "saw", "a", 2), ("c", "met", "b", 3))
OBJECTS = Choice(sides=("object",))


def test_facts_that_share_entity_relation_and_side_are_one_question() -> None:
    made = by_question(set_of(STATIC, [("a", "knows", "d"), ("a", "knows", "c")], OBJECTS))
    (item,) = made.values()
    assert (item.question, golds(item)) == ("a knows whom or what?", ["c", "d", "b"])
    assert (item.subject, item.level, item.custom_id) == ("knows", "2 to 9 answers", "knows/object/1")


def test_questions_that_the_graph_answers_are_left_out_where_these_are_not_wanted() -> None:
    made = set_of(STATIC, [("a", "knows", "d"), ("b", "knows", "d")], Choice(("object",), unanswered=True))
    assert by_question(made).keys() == {"b knows whom or what?"}
    assert (made.counts.left_out.answered, made.counts.answered_by_graph) == (1, 0)


def test_both_ends_are_asked_for_or_one() -> None:
    asked = by_question(set_of(STATIC, [("a", "knows", "d")]))
    assert asked.keys() == {"a knows whom or what?", "Who or what knows d?"}
    subject = asked["Who or what knows d?"]
    assert (golds(subject), subject.custom_id) == (["a", "c"], "knows/subject/1")
    assert subject.query == FactQuery(relation="knows", entity="d", side="subject")
    only = by_question(set_of(STATIC, [("a", "knows", "d")], Choice(sides=("subject",))))
    assert only.keys() == {"Who or what knows d?"}


def test_answers_of_another_time_are_none() -> None:
    held_out = [("a", "met", "b", 2), ("a", "met", "d", 5), ("a", "met", "c", 5), ("a", "met", "b", 6)]
    made = set_of(TIMED, held_out, OBJECTS)
    asked = by_question(made)
    assert {question: golds(item) for question, item in asked.items()} == {
        "At 2, a met whom or what?": ["b", "c"],
        "At 5, a met whom or what?": ["c", "d"],
        "At 6, a met whom or what?": ["b"],
    }
    query = asked["At 5, a met whom or what?"].query
    assert query is not None
    assert query.time == "5"
    assert (made.counts.not_after_graph, made.counts.answered_by_graph, made.counts.answers) == (1, 1, 5)


def test_without_rules_the_earlier_facts_between_entity_and_answers_are_gold_documents() -> None:
    asked = by_question(set_of(TIMED, [("a", "met", "b", 2), ("a", "met", "b", 9), ("c", "met", "a", 9)], OBJECTS))
    assert asked["At 2, a met whom or what?"].gold_documents == {"0": 1}
    assert asked["At 9, a met whom or what?"].gold_documents == {"0": 1, "2": 1}
    assert asked["At 9, c met whom or what?"].gold_documents == {"1": 1}
    apart = by_question(set_of(STATIC, [("b", "knows", "d")], OBJECTS))
    assert apart["b knows whom or what?"].gold_documents is None


def test_gold_documents_without_rules_are_the_latest_so_many() -> None:
    graph = graph_of(*(("a", "met", "b", time) for time in range(LINKS + 10)))
    (item,) = set_of(graph, [("a", "met", "b", 9999)], OBJECTS).items()
    assert list(item.gold_documents or ()) == [str(fact) for fact in range(10, LINKS + 10)]


def test_what_is_not_asked_is_counted_by_its_reason() -> None:
    held_out = [("a", "knows", "b"), ("a", "likes", "b"), ("x", "knows", "b"), ("a", "visits", "y")]
    made = set_of(STATIC, held_out)
    asked = by_question(made)
    assert {question: golds(item) for question, item in asked.items()} == {
        "Who or what knows b?": ["x", "a"], "a visits whom or what?": ["y", "c"],
    }  # fmt: skip
    left_out = made.counts.left_out
    assert (left_out.known, left_out.unknown_relation, left_out.unknown_entity) == (1, 1, 2)
    assert (made.counts.available, made.counts.answered_by_graph, made.counts.unnamed_answers) == (2, 2, 0)
    strange = set_of(STATIC, [("b", "knows", "y")], OBJECTS)
    assert (len(list(strange.items())), strange.counts.unnamed_answers) == (1, 1)


def test_a_question_with_more_than_a_thousand_answers_is_left_out() -> None:
    known = [("a", "knows", f"e{number}") for number in range(ANSWERS)]
    graph = graph_of(*known, ("b", "knows", "a"), *(("c", "knows", f"e{number}") for number in range(ANSWERS - 1)))
    made = set_of(graph, [("a", "knows", "x"), ("b", "knows", "b"), ("c", "knows", "x")], OBJECTS)
    asked = by_question(made)
    assert asked.keys() == {"b knows whom or what?", "c knows whom or what?"}
    assert (made.counts.left_out.many_answers, made.counts.available) == (1, 3)
    assert (len(golds(asked["c knows whom or what?"])), asked["c knows whom or what?"].level) == (
        ANSWERS, "10 or more answers",
    )  # fmt: skip


def test_a_question_that_is_too_long_is_left_out() -> None:
    name = "n" * MAX_QUESTION
    made = set_of(graph_of(("a", "knows", name)), [(name, "knows", "a"), ("a", "knows", "a")], OBJECTS)
    assert len(list(made.items())) == 1
    assert made.counts.left_out.long == 1


def test_no_question_left_says_why() -> None:
    with pytest.raises(Invalid) as refused:
        list(set_of(STATIC, [("a", "knows", "b"), ("x", "likes", "y")]).items())
    assert refused.value.hint == (
        "1 fact is in the graph already; 1 fact has a relation that the graph lacks;"
        " give facts that the graph does not have"
    )


def test_answers_that_are_shown_alike_are_one() -> None:
    (item,) = set_of(graph_of(("New_York", "near", "b")), [("New_York", "near", "a_b"), ("New_York", "near", "a b")],
                     OBJECTS).items()  # fmt: skip
    assert (item.question, golds(item)) == ("New York near whom or what?", ["a b", "b"])


def test_all_answers_of_a_set_are_one_gold_answer() -> None:
    (item,) = set_of(STATIC, [("a", "knows", "d")], Choice(sides=("object",), grader="set")).items()
    assert (item.gold, item.expected) == ("d\nb", None)


def test_a_limit_draws_evenly_by_the_seed_whatever_the_order_of_the_file() -> None:
    entities = [f"e{number}" for number in range(12)]
    graph = graph_of(*((entity, "knows", "hub") for entity in entities))
    held_out = [(one, "knows", other) for one, other in product(entities, repeat=2)]
    full = list(set_of(graph, held_out, Choice()).items())
    few = list(set_of(graph, held_out[::-1], Choice(limit=5)).items())
    assert few == full[:5]
    assert sorted(item.question for item in full[:12]) != sorted(item.question for item in full)[:12]
    assert few != list(set_of(graph, held_out, Choice(limit=5, seed=1)).items())


def upload(path: Path, split: str = "test") -> GraphFacts:
    return facts.read_facts(graph_paths.fact_lines(path, [split]), path.name, 10**6).upload


@needs("kg/kinship")
def test_kinships_test_facts_ask_so_much() -> None:
    folder = DATA / "kg" / "kinship"
    with (folder / "amie-rules.tsv").open("rb") as file:
        rules = list(enumerate(rule_files.read(file, "amie", rule_files.RuleFileLimits()).rules))
    graph, held_out = upload(folder / "train.tsv").graph, upload(folder / "test.tsv").graph
    made = QuestionSet(graph, held_out, Wording({}, {}, None), Choice(limit=200), Bank("ab", "amie", rules))
    items, counts = list(made.items()), made.counts
    assert (len(items), counts.available, counts.answers, counts.with_leads) == (200, 2862, 1211, 172)
    assert (counts.answered_by_graph, counts.with_documents, counts.left_out.unknown_entity) == (156, 172, 0)


@needs("kg/icews14")
def test_icews_test_facts_ask_so_much() -> None:
    graph, held_out = upload(DATA / "kg" / "icews14", "valid").graph, upload(DATA / "kg" / "icews14").graph
    made = QuestionSet(graph, held_out, Wording({}, {}, "day"), Choice(limit=1000), None)
    items, counts = list(made.items()), made.counts
    assert items[0].question == "On 2014-12-16, Who or what host a visit Head of Government (China)?"
    assert (len(items), counts.available, counts.answers, counts.with_documents) == (1000, 20983, 1133, 584)
    assert (counts.unnamed_answers, counts.not_after_graph) == (71, 0)
    assert (counts.left_out.unknown_relation, counts.left_out.unknown_entity) == (52, 2332)


# Rules that lead from a question to its answers: each form of rule, the order of times, and the bounds.

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


# Questions in words: the graph's phrases, a relation's own templates, and what a template may hold.

PHRASES = {"met": Phrase(relation="met", phrase="has met")}


@pytest.mark.parametrize(
    ("wording", "side", "time", "expected"),
    [
        (Wording({}, {}, None), "object", None, "New York lies near whom or what?"),
        (Wording({}, {}, None), "subject", None, "Who or what lies near New York?"),
        (Wording({}, {}, "day"), "subject", "2014-11-11", "On 2014-11-11, Who or what lies near New York?"),
        (Wording({}, {}, "step"), "object", "7", "At 7, New York lies near whom or what?"),
    ],
)
def test_a_relation_is_called_by_its_name(wording: Wording, side: Side, time: str | None, expected: str) -> None:
    assert wording.question("Lies_near", side, "New_York", time) == expected


def test_the_graphs_phrase_comes_first() -> None:
    assert Wording(PHRASES, {}, None).question("met", "object", "a", None) == "a has met whom or what?"


def test_a_template_replaces_both_questions_of_its_relation() -> None:
    templates = {"met": QuestionTemplates("Whom did {subject} meet on {time}?", "Who met {object}?")}
    wording = Wording(PHRASES, templates, "day")
    assert wording.question("met", "object", "{time}", "2014-11-11") == "Whom did {time} meet on 2014-11-11?"
    assert wording.question("met", "subject", "b", "2014-11-11") == "On 2014-11-11, Who met b?"
    assert wording.question("saw", "object", "a", "2014-11-11") == "On 2014-11-11, a saw whom or what?"


@pytest.mark.parametrize(
    ("template", "timed", "said"),
    [
        ("Whom?", True, "lacks the slot {subject}"),
        ("Whom did {subject} {verb}?", True, r"has the slot {verb}; it may have {subject} and {time}"),
        ("Did {subject} meet {object}?", True, "has the slot {object}"),
        ("Whom did {subject} meet on {time}?", False, r"has the slot {time}; it may have {subject}$"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(template: str, *, timed: bool, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_template(template, "subject", timed=timed)
