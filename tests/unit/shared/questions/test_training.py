from collections import Counter
from typing import Any

import msgspec
import numpy as np
import pytest

from shared.questions.items import ALWAYS
from shared.questions.training import (
    DOCUMENTS,
    LONGEST,
    MOST,
    Evidence,
    Form,
    Known,
    Neighbours,
    Told,
    TrainingQuestion,
    evidence,
    lines,
)
from shared.rag.guidance import write_rule
from shared.replies import Atom, Rule
from shared.rules.graph import Graph
from shared.samples import FactQuery, Lead

# Training data of a question: its lines in each form.


FACTS = {
    "0": ("ann", "parent", "cat"), "1": ("cat", "brother", "dan_1"), "2": ("ann", "brother", "gil"),
    "3": ("ann", "aunt", "eve"), "4": ("bob", "uncle", "fay"), "5": ("bob", "aunt", "ann"),
    "6": ("dan_1", "aunt", "eve"), "7": ("bob", "uncle", "eve"),
}  # fmt: skip
TEXTS = {number: " ".join(names).replace("_", " ") + "." for number, names in FACTS.items()}


def rule(*body: Atom, head: tuple[int | str, int | str] = (0, 1)) -> Rule:
    return Rule(head=Atom("uncle", *head), body=body, support=1, body_size=1, confidence=1.0)


RULES = {4: rule(Atom("parent", 0, 2), Atom("brother", 2, 1)), 7: rule(Atom("brother", 0, 1))}
SENTENCES = {number: write_rule(each, {}) for number, each in RULES.items()}
LEADS = (Lead(rule=4, documents=("0", "1")), Lead(rule=7, documents=("2",)))
KNOWN = Known(RULES, SENTENCES, TEXTS, lambda document: Told(document, *FACTS[document]))
QUERY = FactQuery(relation="uncle", entity="ann", bank="ab", leads=LEADS)
QUESTION = TrainingQuestion("Whose uncle?", ("dan 1", "gil"), QUERY, ("3", "4", "5", "6", "7"), (0, 0))


def made(form: Form, question: TrainingQuestion = QUESTION, known: Known = KNOWN, **options: Any) -> list[Any]:
    return list(lines(form, question, known, **options))


def by_seed(form: Form, **options: Any) -> list[Any]:
    found = [made(form, QUESTION._replace(seed=(0, place)), **options) for place in range(40)]
    return [line for (line,) in found]


def test_pairs_are_a_line_for_a_question_and_a_rule() -> None:
    first, second = made("pairs")
    assert first == {
        "query": "Whose uncle?",
        "rule": "[Entity1, parent, Entity3] and [Entity3, brother, Entity2] leads to [Entity1, uncle, Entity2]",
        "positives": ["ann parent cat.", "cat brother dan 1."],
        "negatives": [TEXTS[each] for each in ("3", "4", "5", "6", "7")],
    }
    assert (second["rule"], second["positives"]) == (SENTENCES[7], ["ann brother gil."])


def test_triplets_hold_each_positive_once_and_the_negatives_in_turn() -> None:
    found = made("triplets")
    assert [line["positive"] for line in found] == ["ann parent cat.", "cat brother dan 1.", "ann brother gil."]
    assert [line["negative"] for line in found] == ["ann aunt eve.", "bob uncle fay.", "ann aunt eve."]
    assert found[0]["anchor"] == f"Whose uncle? {SENTENCES[4]}"
    assert made("triplets", QUESTION._replace(negatives=())) == []


def test_an_instruction_shows_the_documents_of_one_rule_between_others() -> None:
    found = by_seed("instructions")
    assert found == by_seed("instructions")
    places: Counter[int] = Counter()
    for line in found:
        shown = line["documents"]
        needed = {"gil": [TEXTS["2"]], "dan 1": [TEXTS["0"], TEXTS["1"]]}[line["answer"]]
        assert len(shown) == DOCUMENTS == len(set(shown))
        assert set(needed) <= set(shown) <= {*needed, *(TEXTS[each] for each in QUESTION.negatives)}
        assert (line["query"], line["rules"]) == ("Whose uncle?", [SENTENCES[4], SENTENCES[7]])
        assert line["instruction"].startswith("Answer the question from the documents.")
        assert "{{" not in line["instruction"]
        places[shown.index(needed[-1])] += 1
    assert {line["answer"] for line in found} == {"gil", "dan 1"}
    assert len(places) == DOCUMENTS


def test_messages_are_the_prompt_of_rulerag_and_the_answer() -> None:
    (line,) = made("messages", QUESTION._replace(negatives=(), golds=("gil",)))
    user, assistant = line["messages"]
    assert user["role"] == "user"
    assert user["content"].endswith(
        "Put the final answer in \\boxed{}.\n\nann brother gil.\n\n"
        f"Rules:\n{SENTENCES[4]}\n{SENTENCES[7]}\n\nQuestion: Whose uncle?"
    )
    assert assistant == {"role": "assistant", "content": "\\boxed{gil}"}


def test_with_reasoning_the_reply_names_rule_and_document_first() -> None:
    replies = {line["messages"][1]["content"] for line in by_seed("messages", cot=True)}
    assert replies == {
        f"{SENTENCES[4]}\ncat brother dan 1.\n\\boxed{{dan 1}}", f"{SENTENCES[7]}\nann brother gil.\n\\boxed{{gil}}",
    }  # fmt: skip
    assert "First write the rule and the document" in by_seed("messages", cot=True)[0]["messages"][0]["content"]


@pytest.mark.parametrize("form", ["instructions", "messages"])
def test_a_question_whose_leads_hold_no_whole_body_teaches_no_answer(form: Form) -> None:
    part = msgspec.structs.replace(QUERY, leads=(Lead(rule=4, documents=("0",)),))
    assert made(form, QUESTION._replace(query=part)) == []
    assert made(form, QUESTION._replace(golds=("eve",))) == []


def test_what_bank_or_corpus_lack_is_left_out() -> None:
    poor = KNOWN._replace(sentences={4: SENTENCES[4]}, texts={each: TEXTS[each] for each in ("0", "3")})
    assert made("pairs", known=poor) == [
        {"query": "Whose uncle?", "rule": SENTENCES[4], "positives": [TEXTS["0"]], "negatives": [TEXTS["3"]]}
    ]
    assert made("instructions", known=poor) == []


def test_answers_of_a_set_are_any_of_its_members() -> None:
    (line,) = made("instructions", QUESTION._replace(golds=("nobody\ngil",)))
    assert line["answer"] == "gil"


# Bodies that lead from a question to an answer, among the facts of a lead.

ASKED = FactQuery(relation="uncle", entity="ann", side="object")
TOLD = [
    Told("0", "eve", "brother", "ian"), Told("1", "ann", "parent", "bob"), Told("2", "ann", "parent", "cat"),
    Told("3", "cat", "brother", "dan"), Told("4", "cat", "brother", "fay"), Told("5", "ann", "brother", "gil"),
]  # fmt: skip


CHAIN = rule(Atom("parent", 0, 2), Atom("brother", 2, 1))


def test_the_facts_of_one_body_are_told_with_the_answer_that_they_reach() -> None:
    assert evidence(CHAIN, ASKED, ["dan"], TOLD) == Evidence("dan", ("2", "3"))
    assert evidence(CHAIN, ASKED, ["fay", "gil"], TOLD) == Evidence("fay", ("2", "4"))
    assert evidence(CHAIN, ASKED, ["gil"], TOLD) is None


def test_a_question_for_the_subject_is_followed_from_the_other_end() -> None:
    query = FactQuery(relation="uncle", entity="dan", side="subject")
    assert evidence(CHAIN, query, ["ann"], TOLD) == Evidence("ann", ("2", "3"))


def test_constants_hold_for_their_entity_alone() -> None:
    constant = rule(Atom("parent", 0, "cat"), head=(0, "dan"))
    assert evidence(constant, ASKED, ["dan"], TOLD) == Evidence("dan", ("2",))
    assert evidence(rule(Atom("parent", 0, "eve"), head=(0, "dan")), ASKED, ["dan"], TOLD) is None
    assert evidence(rule(Atom("parent", 0, "cat"), head=("bob", 0)), ASKED, ["dan"], TOLD) is None


def test_a_fact_that_two_atoms_stand_for_is_told_once() -> None:
    twice = rule(Atom("brother", 0, 1), Atom("brother", 0, 1))
    assert evidence(twice, ASKED, ["gil"], TOLD) == Evidence("gil", ("5",))


@pytest.mark.parametrize(("atoms", "found"), [(LONGEST, True), (LONGEST + 1, False)])
def test_a_long_body_is_not_looked_for(atoms: int, found: bool) -> None:
    loop = rule(*[Atom("parent", 0, "cat")] * (atoms - 1), Atom("brother", 0, 1))
    assert (evidence(loop, ASKED, ["gil"], TOLD) is not None) is found


# Negatives: facts of the same entity or relation that are known and lead to no answer.

ENTITY_FACTS, RELATION_FACTS = range(20), range(20, 60)
TRIPLES = [(0, 1, at) for at in range(1, 11)] + [(at, 1, 0) for at in range(1, 11)] + [
    (at, 0, at + 1) for at in range(11, 51)
]  # fmt: skip
ABOUT_E0 = FactQuery(relation="asked", entity="e0")
"""Entity 0 has the facts 0 to 19, of the other relation; those of its relation follow, and 60 is of neither."""


def neighbours(*, timed: bool = False) -> Neighbours:
    triples = np.array([*TRIPLES, (70, 1, 71)], np.int32)
    times = np.arange(len(triples), dtype=np.int64) if timed else None
    return Neighbours(Graph(triples, times, [f"e{at}" for at in range(72)], ["asked", "other"]))


def draw(
    query: FactQuery = ABOUT_E0, before: int = ALWAYS, oracle: frozenset[str] = frozenset(), seed: int = 0
) -> list[int]:
    found = neighbours(timed=before != ALWAYS).draw(query, before, oracle, np.random.default_rng(seed))
    assert len(set(found)) == len(found)
    return [int(each) for each in found]


def test_half_of_them_are_the_entitys_and_the_others_the_relations() -> None:
    found = draw()
    assert len(found) == MOST
    assert sum(each in ENTITY_FACTS for each in found) == MOST // 2
    assert sum(each in RELATION_FACTS for each in found) == MOST // 2
    assert draw() == found != draw(seed=1)


def test_where_one_side_has_too_few_the_other_has_more() -> None:
    assert set(draw(FactQuery(relation="unknown", entity="e0"))) <= set(ENTITY_FACTS)
    assert set(draw(FactQuery(relation="asked", entity="stranger"))) <= set(RELATION_FACTS)
    assert {len(draw(FactQuery(relation="asked", entity="stranger"), seed=seed)) for seed in range(5)} == {MOST}
    assert draw(FactQuery(relation="unknown", entity="stranger")) == []


def test_oracle_documents_are_none_of_them() -> None:
    oracle = frozenset(str(each) for each in [*ENTITY_FACTS, *RELATION_FACTS] if each not in (3, 30))
    assert sorted(draw(oracle=oracle)) == [3, 30]


@pytest.mark.parametrize(("before", "known"), [(25, range(25)), (2, range(2)), (0, range(0))])
def test_what_comes_later_than_the_question_is_not_known(before: int, known: range) -> None:
    found = draw(before=before)
    assert set(found) <= set(known)
    assert len(found) == min(MOST, len(known))
