"""rulerag: how the relation is found, what rules search for and bring, what the prompt shows, and every fallback."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from services.retriever.index import Bm25, Bm25Index
from shared.calls import Call, FindRules, Generate, Retrieve, Write
from shared.params import Params
from shared.pipelines import registry
from shared.replies import (
    Atom,
    CallFailed,
    Document,
    Failure,
    FailureKind,
    FoundRules,
    Generated,
    NumberedRule,
    Reply,
    Retrieved,
    Rule,
)
from shared.runtime.price import dry_run, make_placeholder_job
from shared.samples import Decision, FactQuery, Item, Outcome, Sample
from tests.unit.shared.pipelines.test_pipelines import BROKEN, Answer, drive, found

FACTS = (
    "Ann consult Cuba.", "Ann host a visit Chile.", "Ann brother Bob.", "Bob wife Cyd.", "Cyd sister Dee.",
    "Eve consult Peru.", "Eve make a visit Peru.", "Dee like Fay.",
)  # fmt: skip
TOY = ("Ann like Bob.", "Ann consult Republic of Cuba.", "Bob like Cyd.", "Eve like Peru.")
LIBRARY = {document.hash: document for document in (Document(text=fact) for fact in (*FACTS, *TOY))}
QUESTION = "Where does Ann make a visit?"
VISIT = FactQuery(relation="Make_a_visit", entity="Ann")
FIRST = "[Entity1, consult, Entity2] leads to [Entity1, make a visit, Entity2]"


def index_of(*facts: str) -> Bm25Index:
    return Bm25().build([[(hash_, document.text) for hash_, document in LIBRARY.items() if document.text in facts]])


INDEX = index_of(*FACTS)


def rule(*body: Atom, head: str = "Make_a_visit") -> Rule:
    return Rule(head=Atom(head, 0, 1), body=body, support=4, body_size=8, confidence=0.5)


CONSULT = rule(Atom("Consult", 0, 1))
LIKE = rule(Atom("Like", 0, 1))
CHAIN = rule(Atom("Sister", 3, 1), Atom("Wife", 2, 3), Atom("Brother", 0, 2))


def bank(*rules: Rule, index: Bm25Index = INDEX) -> Answer:
    numbered = tuple(NumberedRule(number, each) for number, each in enumerate(rules, start=10))

    def reply(call: Call) -> Reply:
        match call:
            case FindRules(relation="", question=""):
                return FoundRules(relation=None, phrases={"Make_a_visit": "make a visit"} if rules else {})
            case FindRules(relation=relation, question=question):
                named = relation or ("Make_a_visit" if "make a visit" in question else None)
                return FoundRules(relation=named, rules=numbered if named == "Make_a_visit" else ())
            case Retrieve():
                hits = index.search([call.question], call.k)[0]
                return found(*(hit.document for hit in hits), duplicates=("dup",))
            case Write():
                return Generated(text="")
            case _:
                return Generated(text=r"So \boxed{Cuba}.")

    return reply


def where(condition: Callable[[Call], bool], reply: Reply, world: Answer) -> Answer:
    return lambda call: reply if condition(call) else world(call)


def run(
    world: Answer, question: str = QUESTION, query: FactQuery | None = None, **groups: Any
) -> tuple[Outcome, list[list[Call]]]:
    """Run the pipeline; rules alone are searched for unless `groups` say otherwise."""
    rulerag = {"question": False, **groups.pop("rulerag", {})}
    params = msgspec.convert({"rules": "bank", "rulerag": rulerag, **groups}, Params)
    sample = Sample(item=Item(ordinal=0, question=question, query=query))
    return drive(registry.get("rulerag").run(sample, params, LIBRARY), world)


def kinds(steps: Sequence[Sequence[Call]]) -> list[list[str]]:
    return [[type(call).__name__ for call in step if getattr(call, "index", "") != "dense"] for step in steps]


def searched(steps: Sequence[Sequence[Call]]) -> list[list[str]]:
    queries = [
        [call.question for call in step if isinstance(call, Retrieve) and call.index == "sparse"] for step in steps
    ]
    return [step for step in queries if step]


def decisions(outcome: Outcome, stage: str) -> list[Decision]:
    return [decision for decision in outcome.trace.decisions if decision.stage == stage]


def texts(hashes: Any) -> list[str]:
    return [LIBRARY[hash_].text for hash_ in hashes]


def prompt(steps: Sequence[Sequence[Call]]) -> Generate:
    (call,) = steps[-1]
    assert isinstance(call, Generate)
    return call


def test_a_named_relation_is_looked_up_and_its_rules_are_searched_for_at_once() -> None:
    outcome, steps = run(bank(CONSULT, LIKE), query=VISIT)
    assert kinds(steps) == [["FindRules"], ["Retrieve"] * 4, ["Generate"]]
    (call,) = steps[0]
    assert isinstance(call, FindRules)
    assert (call.relation, call.question, call.side) == ("Make_a_visit", "", "object")
    assert (call.choice.most, call.choice.support) == (5, 20)
    queries = [f"{QUESTION} {FIRST}", f"{QUESTION} {FIRST.replace('consult', 'like')}"]
    assert searched(steps) == [[*queries, "Ann consult", "Ann like"]]
    assert decisions(outcome, "relation") == [
        Decision(stage="relation", action="named", detail={"relation": "Make_a_visit", "bank": "bank"})
    ]


@pytest.mark.parametrize(
    ("query", "side"),
    [
        (FactQuery(relation="r"), ""),
        (FactQuery(relation="r", side="subject"), "subject"),
        (FactQuery(relation="r", entity="Ann"), "object"),
    ],
)
def test_the_end_that_is_asked_for_is_known_where_the_item_says_it(query: FactQuery, side: str) -> None:
    (call,) = run(bank(), query=query)[1][0]
    assert isinstance(call, FindRules)
    assert call.side == side


def test_a_phrase_in_the_question_names_the_relation() -> None:
    outcome, steps = run(bank(CONSULT))
    assert kinds(steps) == [["FindRules"], ["Retrieve"] * 2, ["Generate"]]
    assert decisions(outcome, "relation")[0].action == "phrase"


ASKED = "Where does Ann travel?"


def test_the_judge_model_is_asked_for_a_relation_that_nothing_names() -> None:
    world = where(lambda call: isinstance(call, Write), Generated(text=" Relation: make a visit\nsure"), bank(CONSULT))
    outcome, steps = run(world, ASKED)
    assert kinds(steps) == [["FindRules"], ["FindRules"], ["Write"], ["FindRules"], ["Retrieve"] * 2, ["Generate"]]
    (call,) = steps[2]
    assert isinstance(call, Write)
    assert (call.template, call.slots) == ("relation", {"question": ASKED, "relations": "make a visit"})
    (decision,) = decisions(outcome, "relation")
    assert (decision.action, decision.detail["relation"], decision.fallback) == ("judge", "Make_a_visit", None)
    assert decisions(outcome, "rule")


@pytest.mark.parametrize(
    ("reply", "fallback"),
    [
        (Generated(text="\n "), "unparsed"),
        (Generated(text="no idea"), "unknown_relation"),
        (Failure(kind=FailureKind.REFUSED), "refused"),
        (BROKEN, "connection"),
    ],
)
def test_a_judge_model_that_names_no_relation_leaves_plain_retrieval(reply: Reply, fallback: str) -> None:
    outcome, steps = run(where(lambda call: isinstance(call, Write), reply, bank(CONSULT)), ASKED)
    (decision,) = outcome.trace.decisions
    assert (decision.action, decision.fallback) == ("none", fallback)
    assert prompt(steps).slots == {}
    sample = Sample(item=Item(ordinal=0, question=ASKED))
    hybrid, _ = drive(registry.get("hybrid").run(sample, Params(), LIBRARY), bank())
    assert outcome.context == hybrid.context
    assert outcome.trace.candidates == tuple(replace(each, fused=None) for each in hybrid.trace.candidates)


def test_without_a_judge_model_none_is_asked() -> None:
    outcome, steps = run(bank(CONSULT), ASKED, rulerag={"ask": False})
    assert kinds(steps) == [["FindRules"], ["Retrieve"], ["Generate"]]
    assert outcome.trace.decisions[0].fallback == "not_configured"


def test_a_bank_that_leads_nowhere_asks_no_model() -> None:
    outcome, steps = run(bank(), ASKED)
    assert kinds(steps) == [["FindRules"], ["FindRules"], ["Retrieve"], ["Generate"]]
    assert outcome.trace.decisions[0].fallback == "no_rule"


def test_a_relation_without_rules_is_searched_for_plainly_and_says_so() -> None:
    outcome, steps = run(bank(), query=VISIT)
    (decision,) = outcome.trace.decisions
    assert (decision.action, decision.fallback) == ("named", "no_rule")
    assert searched(steps) == [[QUESTION]]
    assert (prompt(steps).template, prompt(steps).slots) == ("rulerag", {})


def test_with_no_rules_at_most_none_are_looked_for() -> None:
    outcome, steps = run(bank(CONSULT), query=VISIT, rulerag={"most": 0})
    assert kinds(steps) == [["Retrieve"], ["Generate"]]
    assert outcome.trace.decisions[0].fallback == "no_rule"


@pytest.mark.parametrize("kind", [FindRules, Retrieve])
def test_a_bank_or_an_index_that_is_away_fails_the_sample(kind: type) -> None:
    with pytest.raises(CallFailed, match="retriever is gone"):
        run(where(lambda call: isinstance(call, kind), BROKEN, bank(CONSULT)), query=VISIT)


def test_a_rule_finds_what_plain_words_miss() -> None:
    alone: dict[str, Any] = {"query": VISIT, "candidates": 1, "rulerag": {"index": "sparse"}}
    plain, _ = run(bank(index=index_of(*TOY)), **alone)
    guided, _ = run(bank(CONSULT, index=index_of(*TOY)), **alone)
    assert texts(plain.context) == ["Ann like Bob."]
    assert texts(guided.context) == ["Ann consult Republic of Cuba."]


A, B, C, D = list(LIBRARY)[:4]


def two_rules(call: Call) -> Reply:
    lists = {"consult": (A, B, C), "like": (B, D)}
    if isinstance(call, Retrieve):
        documents = next(found for word, found in lists.items() if word in call.question)
        return found(*documents) if QUESTION in call.question else found()
    return bank(CONSULT, LIKE)(call)


def test_rules_take_turns_and_each_document_counts_once() -> None:
    outcome, _ = run(two_rules, query=VISIT, candidates=3, context_size=2, rulerag={"index": "dense"})
    ranked = outcome.trace.candidates
    assert [each.document for each in ranked] == [A, B, D] == [*outcome.context, D]
    assert [each.paths for each in ranked] == [{"rule 10": 1}, {"rule 10": 2, "rule 11": 1}, {"rule 11": 2}]
    assert [(each.rank, each.dense_rank, each.sparse_rank) for each in ranked] == [
        (1, 1, None),
        (2, 1, None),
        (3, 2, None),
    ]
    assert [each.detail["documents"] for each in decisions(outcome, "rule")] == [[A, B], [B, D]]


def test_what_the_question_itself_finds_takes_turns_with_what_chains_find() -> None:
    def world(call: Call) -> Reply:
        if not isinstance(call, Retrieve):
            return two_rules(call)
        return {QUESTION: found(D, B), "Ann consult": found(A)}.get(call.question, found(C))

    outcome, _ = run(world, query=VISIT, rulerag={"index": "dense", "question": True})
    ranked = outcome.trace.candidates
    assert [each.document for each in ranked] == [A, D, B, C]
    assert [each.paths for each in ranked[1:]] == [{"question": 1}, {"question": 2}, {"rule 10": 2, "rule 11": 1}]


@pytest.mark.parametrize("rulerag", [{"width": 0}, {"query": "rewritten"}], ids=str)
def test_without_chains_or_with_written_queries_the_searches_of_rules_take_turns_with_the_question(
    rulerag: dict[str, Any],
) -> None:
    def world(call: Call) -> Reply:
        if isinstance(call, Write):
            return Generated(text="1. visits of Ann")
        if not isinstance(call, Retrieve):
            return two_rules(call)
        return found(D, A) if call.question == QUESTION else found(B)

    chosen = {"index": "dense", "question": True, **rulerag}
    outcome, _ = run(world, query=VISIT, candidates=2, rulerag=chosen)
    assert {each.document for each in outcome.trace.candidates} == {B, D}


@pytest.mark.parametrize(
    ("documents", "candidates", "union"),
    [(0, 10, [A, B, D, C]), (1, 10, [A, B]), (2, 10, [A, B, D]), (3, 10, [A, B, D, C]), (2, 2, [A, B])],
)
def test_the_union_of_the_best_documents_of_each_rule_is_taken(
    documents: int, candidates: int, union: list[str]
) -> None:
    rulerag = {"index": "dense", "documents": documents}
    outcome, _ = run(two_rules, query=VISIT, candidates=candidates, rulerag=rulerag)
    assert [each.document for each in outcome.trace.candidates] == union


def test_what_chains_find_comes_before_what_queries_find() -> None:
    outcome, _ = run(bank(LIKE, CHAIN, CONSULT), query=VISIT, rulerag={"index": "sparse"})
    path = ["Ann brother Bob.", "Bob wife Cyd.", "Cyd sister Dee."]
    assert texts(each.document for each in outcome.trace.candidates)[:4] == [*path, "Ann consult Cuba."]
    assert [texts(each.detail["chained"]) for each in decisions(outcome, "rule")] == [[], path, ["Ann consult Cuba."]]


def test_a_decision_says_of_a_rule_what_it_is_worth() -> None:
    outcome, _ = run(bank(CONSULT), query=VISIT, candidates=1)
    (decision,) = decisions(outcome, "rule")
    assert (decision.action, decision.fallback) == ("search", None)
    assert decision.detail == {
        "rule": FIRST, "number": 10, "certainty": 0.5, "support": 4, "query": f"{QUESTION} {FIRST}",
        "documents": [outcome.context[0]], "chained": [outcome.context[0]],
    }  # fmt: skip


def test_a_chain_goes_on_from_what_it_finds() -> None:
    outcome, steps = run(bank(CHAIN), query=VISIT, rulerag={"width": 1, "index": "sparse"})
    assert [step[-1] for step in searched(steps)] == ["Ann brother", "Bob wife", "Cyd sister"]
    assert kinds(steps) == [["FindRules"], ["Retrieve", "Retrieve"], ["Retrieve"], ["Retrieve"], ["Generate"]]
    (decision,) = decisions(outcome, "rule")
    assert texts(decision.detail["chained"]) == ["Ann brother Bob.", "Bob wife Cyd.", "Cyd sister Dee."]


def test_a_chain_begins_at_the_object_where_the_subject_is_asked_for() -> None:
    query = FactQuery(relation="Make_a_visit", entity="Dee", side="subject")
    _, steps = run(bank(CHAIN), query=query, rulerag={"width": 1, "index": "sparse"})
    assert [step[-1] for step in searched(steps)] == ["Dee sister", "Cyd wife", "Bob brother"]
    _, steps = run(bank(CHAIN), rulerag={"width": 1, "index": "sparse"})
    assert searched(steps)[0][-1] == "where does ann brother"
    assert searched(steps)[1] == ["Bob wife"]


def test_a_chain_goes_on_from_as_many_entities_as_its_width_and_all_chains_together() -> None:
    facts = ("Ann brother Bob.", "Time 3 Ann brother Bob.", "Ann brother Cyd.", "Ann brother Dee.", "Bob wife Eve.")
    library = {document.hash: document for document in (Document(text=fact) for fact in facts)}

    def world(call: Call) -> Reply:
        if isinstance(call, Retrieve):
            return found(
                *(hash_ for hash_, each in library.items() if "brother" in call.question and "brother" in each.text)
            )
        return bank(CHAIN, rule(Atom("Brother", 0, 2), Atom("Wife", 2, 1)))(call)

    sample = Sample(item=Item(ordinal=0, question=QUESTION, query=VISIT))
    params = msgspec.convert({"rulerag": {"width": 3, "index": "sparse", "question": False}}, Params)
    _, steps = drive(registry.get("rulerag").run(sample, params, library), world)
    assert searched(steps)[0][2:] == ["Ann brother"] * 2
    assert searched(steps)[1:] == [["Bob wife", "Cyd wife", "Bob wife", "Cyd wife"]]


def test_without_a_width_a_rule_is_searched_for_by_its_query_alone() -> None:
    outcome, steps = run(bank(CHAIN), query=VISIT, rulerag={"width": 0, "index": "sparse"})
    assert kinds(steps) == [["FindRules"], ["Retrieve"], ["Generate"]]
    (decision,) = decisions(outcome, "rule")
    assert (decision.detail["chained"], len(outcome.context)) == ([], 1)


def test_a_chain_that_finds_nothing_ends() -> None:
    def world(call: Call) -> Reply:
        return found() if isinstance(call, Retrieve) and call.question == "Ann brother" else bank(CHAIN)(call)

    outcome, steps = run(world, query=VISIT, rulerag={"index": "sparse"})
    assert len(searched(steps)) == 1
    assert outcome.trace.candidates
    assert decisions(outcome, "rule")[0].detail["chained"] == []


def test_a_rule_whose_head_stands_in_its_body_is_followed_like_others() -> None:
    cyclic = rule(Atom("Make_a_visit", 0, 2), Atom("Make_a_visit", 1, 2))
    outcome, steps = run(bank(cyclic), query=FactQuery(relation="Make_a_visit", entity="Eve"))
    assert kinds(steps)[-1] == ["Generate"]
    assert [step[-1] for step in searched(steps)] == ["Eve make a visit", "Peru make a visit"]
    assert texts(outcome.context) == ["Eve make a visit Peru."]


@pytest.mark.parametrize(
    ("use", "rules", "queries"), [("both", True, 1), ("retrieval", False, 1), ("generation", True, 0)]
)
def test_rules_guide_searches_the_prompt_or_both(use: str, rules: bool, queries: int) -> None:
    outcome, steps = run(bank(CONSULT), query=VISIT, rulerag={"use": use})
    assert prompt(steps).slots == ({"rules": f"Rules:\n{FIRST}\n\n"} if rules else {})
    assert searched(steps) == [[f"{QUESTION} {FIRST}", "Ann consult"] if queries else [QUESTION]]
    assert [each.action for each in decisions(outcome, "rule")] == ["search" if queries else "prompt"]


@pytest.mark.parametrize("index", ["dense", "sparse"])
def test_one_index_may_be_searched_alone(index: str) -> None:
    for rules in ((CONSULT,), ()):
        outcome, steps = run(bank(*rules), query=VISIT, rulerag={"index": index})
        assert {call.index for step in steps for call in step if isinstance(call, Retrieve)} == {index}
        (best, *_) = outcome.trace.candidates
        assert (best.dense_rank is None, best.sparse_rank is None) == (index != "dense", index != "sparse")


def test_the_judge_model_writes_a_query_for_each_rule_and_is_asked_once() -> None:
    def world(call: Call) -> Reply:
        if isinstance(call, Write):
            return Generated(text="Ann consult" if "consult" in call.slots["rule"] else "I cannot write one.")
        return bank(CONSULT, LIKE, CONSULT)(call)

    outcome, steps = run(world, query=VISIT, rulerag={"query": "rewritten"})
    assert kinds(steps) == [["FindRules"], ["Write", "Write"], ["Retrieve"] * 6, ["Generate"]]
    assert searched(steps)[0][0] == searched(steps)[0][2] == "Ann consult"
    assert searched(steps)[0][1].startswith(f"{QUESTION} [Entity1, like")
    assert [each.fallback for each in decisions(outcome, "rule")] == [None, "unparsed", None]


@pytest.mark.parametrize(
    ("reply", "fallback"), [(Generated(text=QUESTION), "unchanged"), (Failure(kind=FailureKind.REFUSED), "refused")]
)
def test_question_and_rule_are_searched_where_no_query_is_written(reply: Reply, fallback: str) -> None:
    world = where(lambda call: isinstance(call, Write), reply, bank(CONSULT))
    outcome, steps = run(world, query=VISIT, rulerag={"query": "rewritten"})
    assert searched(steps)[0][0] == f"{QUESTION} {FIRST}"
    assert decisions(outcome, "rule")[0].fallback == fallback


def test_reasons_are_asked_for_with_cot() -> None:
    assert prompt(run(bank(CONSULT), query=VISIT, rulerag={"cot": True})[1]).template == "rulerag-cot"


def test_random_rules_are_others_for_each_question_and_seed() -> None:
    def seed(question: str, **groups: Any) -> int:
        (call,) = run(bank(CONSULT), question, VISIT, **groups)[1][0]
        assert isinstance(call, FindRules)
        return call.choice.seed

    random = {"rulerag": {"order": "random"}}
    seeds = [seed(QUESTION, **random), seed(ASKED, **random), seed(QUESTION, **random, seed=1)]
    assert len(set(seeds)) == 3
    assert seed(QUESTION) == seed(ASKED) == 0


def test_what_searches_say_is_told_once() -> None:
    def world(call: Call) -> Reply:
        reply = bank(CONSULT, LIKE)(call)
        if isinstance(reply, Retrieved) and isinstance(call, Retrieve) and call.index == "dense":
            return msgspec.structs.replace(reply, hits=(), reason="no vector")
        return reply

    outcome, _ = run(world, query=VISIT)
    assert outcome.trace.duplicates == ("dup",)
    assert [each.action for each in decisions(outcome, "retrieve")] == ["without dense"]


def test_a_long_question_leaves_room_for_a_search() -> None:
    _, steps = run(bank(CONSULT), "x" * 32_768, VISIT)
    assert len(searched(steps)[0][0]) == 32_768


@pytest.mark.parametrize(
    ("rulerag", "roles"),
    [
        ({"ask": False}, {"rules", "retrieve", "generate"}),
        ({}, {"rules", "write", "retrieve", "generate"}),
        ({"most": 0}, {"retrieve", "generate"}),
    ],
)
def test_the_price_counts_what_may_be_asked(rulerag: dict[str, Any], roles: set[str]) -> None:
    params = msgspec.convert({"rules": "bank", "rulerag": rulerag}, Params)
    rounds = list(dry_run(make_placeholder_job("rulerag", params), Item(ordinal=0, question="?")))
    assert {call.role for calls in rounds for call in calls} == roles


def test_a_query_for_each_rule_is_priced() -> None:
    params = msgspec.convert({"rulerag": {"query": "rewritten", "most": 5}}, Params)
    rounds = list(dry_run(make_placeholder_job("rulerag", params), Item(ordinal=0, question="?")))
    assert sum(call.role == "write" for calls in rounds for call in calls) == 5 + 1
