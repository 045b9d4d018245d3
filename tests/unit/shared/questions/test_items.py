"""Question sets: one question for facts that share what is known, and all true answers to it."""

import os
from itertools import product
from pathlib import Path

import pytest

from shared.calls import MAX_QUESTION
from shared.errors import Invalid
from shared.ingest import facts, graph_paths, rule_files
from shared.questions.items import ANSWERS, LINKS, Bank, Choice, QuestionSet, Wording
from shared.samples import FactQuery
from shared.settings import REPOSITORY
from shared.storage.graphs import GraphFacts
from tests.unit.shared.questions.toys import by_question, golds, graph_of, set_of

DATA = Path(os.environ.get("MATHRAG_SHARED", REPOSITORY.parent / "shared")) / "data" / "kg"
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


@pytest.mark.skipif(not (DATA / "kinship").is_dir(), reason="../shared/data/kg/kinship is not there")
def test_kinships_test_facts_ask_so_much() -> None:
    folder = DATA / "kinship"
    with (folder / "amie-rules.tsv").open("rb") as file:
        rules = list(enumerate(rule_files.read(file, "amie", rule_files.RuleFileLimits()).rules))
    graph, held_out = upload(folder / "train.tsv").graph, upload(folder / "test.tsv").graph
    made = QuestionSet(graph, held_out, Wording({}, {}, None), Choice(limit=200), Bank("ab", "amie", rules))
    items, counts = list(made.items()), made.counts
    assert (len(items), counts.available, counts.answers, counts.with_leads) == (200, 2862, 1211, 172)
    assert (counts.answered_by_graph, counts.with_documents, counts.left_out.unknown_entity) == (156, 172, 0)


@pytest.mark.skipif(not (DATA / "icews14").is_dir(), reason="../shared/data/kg/icews14 is not there")
def test_icews_test_facts_ask_so_much() -> None:
    graph, held_out = upload(DATA / "icews14", "valid").graph, upload(DATA / "icews14").graph
    made = QuestionSet(graph, held_out, Wording({}, {}, "day"), Choice(limit=1000), None)
    items, counts = list(made.items()), made.counts
    assert items[0].question == "On 2014-12-16, Who or what host a visit Head of Government (China)?"
    assert (len(items), counts.available, counts.answers, counts.with_documents) == (1000, 20983, 1133, 584)
    assert (counts.unnamed_answers, counts.not_after_graph) == (71, 0)
    assert (counts.left_out.unknown_relation, counts.left_out.unknown_entity) == (52, 2332)
