"""Self-consistency: sampled answers vote, those that mean the same together; votes can be recounted from the trace."""

from collections.abc import Callable, Mapping, Sequence
from itertools import permutations
from typing import Any

import msgspec
import pytest

from shared.calls import Call, Generate, Grade, Request, Retrieve, Rules
from shared.params import GradingParams, Params, SelfConsistencyParams
from shared.pipelines.binding import Binding, SampleBinder
from shared.rag.grading import choose_marking_grader, mark
from shared.rag.voting import count_votes, make_comparison, pair_answers
from shared.replies import CallFailed, Failure, FailureKind, Generated, Graded, Reply, Token
from shared.runtime.price import dry_run, list_drawn_roles, make_placeholder_job
from shared.samples import Decision, Extraction, Item, Outcome
from tests.unit.shared.pipelines.test_binding import PINS
from tests.unit.shared.pipelines.test_pipelines import C, run, world

NO_BOX = "I do not know."
TIMEOUT = Failure(kind=FailureKind.GRADER_TIMEOUT)
EQUAL = ({"1/2", "0.5", r"\frac12"}, {"7", "7.0"})


def grade(call: Grade) -> Reply:
    same = any({call.answer, call.gold} <= group for group in EQUAL)
    return Graded(math_verify=same, strict=False)


def drawing(texts: Sequence[str | Failure], grader: Callable[[Grade], Reply] = grade) -> Callable[[Call], Reply]:
    def answer(call: Call) -> Reply:
        match call:
            case Generate():
                text = texts[call.draw]
                if isinstance(text, Failure):
                    return text
                return Generated(text=text if text == NO_BOX else f"so \\boxed{{{text}}}")
            case Grade():
                return grader(call)
            case _:
                return world(call)

    return answer


def vote(texts: Sequence[str | Failure], grader: Callable[[Grade], Reply] = grade) -> tuple[Outcome, list[list[Call]]]:
    params = Params(self_consistency=SelfConsistencyParams(draws=len(texts)))
    return run("self-consistency", drawing(texts, grader), params)


def stages(outcome: Outcome, stage: str) -> list[Decision]:
    return [decision for decision in outcome.trace.decisions if decision.stage == stage]


def counted(outcome: Outcome) -> Mapping[Any, Any]:
    return {decision.detail["answer"]: decision.detail["votes"] for decision in stages(outcome, "votes")}


def test_draws_are_of_one_prompt_with_hybrid_context_and_each_is_a_call_of_its_own() -> None:
    outcome, asked = run("self-consistency", drawing(["7"] * 5))
    assert [type(call) for call in asked[0]] == [Retrieve, Retrieve]
    assert asked[1] == [
        Generate(template="cot", question="What is x?", context=(C,), temperature=0.7, draw=draw) for draw in range(5)
    ]
    bound = SampleBinder(Binding(pins=PINS, params=Params()), 0).bind(asked[1])
    assert len({each.key for each in bound}) == 5
    assert (outcome.answer, outcome.extraction, outcome.context) == ("7", Extraction.OK, (C,))


def test_an_answer_is_found_in_a_draw_by_the_grader_of_the_job() -> None:
    params = Params(self_consistency=SelfConsistencyParams(draws=3), grading=GradingParams(grader="choice"))
    outcome, asked = run("self-consistency", drawing(["A", "(B) Paris", "B"]), params)
    assert counted(outcome) == {"B": 2, "A": 1}
    assert asked[-1] == [Grade(answer="B", gold="A", peers=True), Grade(answer="A", gold="B", peers=True)]


@pytest.mark.parametrize("grader", ["regex", "rubric"])
def test_answers_of_a_vote_are_compared_as_texts_where_the_grader_compares_no_answers(grader: str) -> None:
    params = Params(grading=GradingParams(grader=grader))
    bound = SampleBinder(Binding(pins=PINS, params=params), 0).bind([Grade(answer="b", gold="a", peers=True)])
    request = msgspec.json.decode(bound[0].body, type=Request)
    assert request.rules is not None
    assert request.rules.grader == "text"


def test_the_worst_document_is_left_out_where_no_draw_holds_the_context() -> None:
    def answer(call: Call) -> Reply:
        match call:
            case Generate(context=()):
                return Generated(text=r"so \boxed{7}")
            case Generate():
                return Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="4,097 tokens")
            case _:
                return drawing(["7"] * 3)(call)

    outcome, asked = run("self-consistency", answer, Params(self_consistency=SelfConsistencyParams(draws=3)))
    generations = [step for step in asked if step and isinstance(step[0], Generate)]
    assert [len(step) for step in generations] == [3] * len(generations)
    assert [decision.detail["document"] for decision in stages(outcome, "context")] == [C]
    assert outcome.answer == "7"
    assert outcome.context == ()


def test_answers_that_mean_the_same_vote_together() -> None:
    outcome, asked = vote(["3", "1/2", "3", "0.5", r"\frac12"])
    assert outcome.answer == "1/2"
    assert counted(outcome) == {"1/2": 3, "3": 2}
    assert {(call.gold, call.answer) for call in asked[2] if isinstance(call, Grade)} == set(
        pair_answers(["3", "1/2", "0.5", r"\frac12"])
    )
    (result,) = stages(outcome, "vote")
    assert result.action == "majority"
    assert result.detail == {"draws": 5, "failed": 0, "without_answer": 0, "candidates": 2}


def test_the_form_that_was_written_most_often_is_the_answer() -> None:
    assert vote(["0.5", "1/2", "1/2"])[0].answer == "1/2"
    assert vote(["0.5", "1/2"])[0].answer == "0.5"


def test_a_tie_goes_to_the_answer_that_was_drawn_first_and_the_trace_says_tie() -> None:
    outcome, _ = vote(["3", "7", "7.0", "3"])
    assert outcome.answer == "3"
    assert stages(outcome, "vote")[0].action == "tie"
    assert counted(outcome) == {"3": 2, "7": 2}


def test_texts_without_an_answer_and_failed_draws_do_not_vote() -> None:
    outcome, _ = vote([NO_BOX, TIMEOUT, NO_BOX, "7", NO_BOX])
    assert outcome.answer == "7"
    assert stages(outcome, "vote")[0].detail == {"draws": 5, "failed": 1, "without_answer": 3, "candidates": 1}
    assert [decision.fallback for decision in stages(outcome, "draw")] == ["grader_timeout"]


def test_without_any_answer_the_outcome_says_that_none_was_found() -> None:
    outcome, asked = vote([NO_BOX, NO_BOX])
    assert (outcome.answer, outcome.extraction) == (None, Extraction.MISSING)
    assert stages(outcome, "vote")[0].action == "no answer"
    assert len(asked) == 2 or asked[2] == []


def generated(answer: str, *logprobs: float) -> Generated:
    tokens = tuple(Token(text="x", logprob=each) for each in logprobs)
    return Generated(text=f"so \\boxed{{{answer}}}", tokens=tokens)


def vote_by_probability(drawn: Sequence[Generated]) -> tuple[Outcome, list[list[Call]]]:
    chosen = SelfConsistencyParams(draws=len(drawn), weights="probability")
    answer = drawing([""] * len(drawn))
    return run(
        "self-consistency",
        lambda call: drawn[call.draw] if isinstance(call, Generate) else answer(call),
        Params(self_consistency=chosen),
    )


def test_a_vote_by_probability_counts_the_mean_log_probability_of_each_draw() -> None:
    """exp((-0.1 - 0.3) / 2) = .818731 for 1/2; exp(-1) + exp((-2 - 0.4) / 2) = .367879 + .301194 = .669074 for 3."""
    drawn = [generated("3", -1.0), generated("1/2", -0.1, -0.3), generated("3", -2.0, -0.4)]
    outcome, asked = vote_by_probability(drawn)
    assert outcome.answer == "1/2"
    assert counted(outcome) == {"1/2": 1, "3": 2}
    assert [each.detail["weight"] for each in stages(outcome, "votes")] == pytest.approx([0.818731, 0.669074], abs=1e-6)
    assert stages(outcome, "vote")[0].action == "majority"
    assert asked[1] == [msgspec.structs.replace(call, logprobs=1) for call in vote(["7"] * 3)[1][1]]


def test_the_likeliest_form_of_the_elected_answer_is_given() -> None:
    outcome, _ = vote_by_probability([generated("0.5", -3.0), generated("0.5", -3.0), generated("1/2", -0.5)])
    assert (outcome.answer, counted(outcome)) == ("1/2", {"1/2": 3})


def test_each_draw_counts_1_where_one_came_without_log_probabilities_and_the_trace_says_so() -> None:
    outcome, _ = vote_by_probability([generated("3", -1.0), generated("7", -0.01), generated("3")])
    assert (outcome.answer, counted(outcome)) == ("3", {"3": 2, "7": 1})
    assert [(each.action, each.fallback) for each in stages(outcome, "weights")] == [("count", "no_log_probabilities")]


def test_where_every_draw_failed_the_sample_fails_with_the_first_failure() -> None:
    with pytest.raises(CallFailed, match="grader_timeout"):
        vote([TIMEOUT, TIMEOUT])


def test_answers_that_could_not_be_compared_are_counted_apart_in_words() -> None:
    outcome, _ = vote(["1/2", "0.5", "3"], lambda call: TIMEOUT if call.answer == "0.5" else grade(call))
    assert counted(outcome) == {"1/2": 1, "0.5": 1, "3": 1}
    (apart,) = stages(outcome, "compare")
    assert (apart.detail["answers"], apart.fallback) == (["1/2", "0.5"], "grader_timeout")


def by_rules(answers: Sequence[str], name: str = "math") -> list[tuple[str, int]]:
    rules = Rules(grader=choose_marking_grader(name, peers=True))
    pairs = pair_answers(answers)
    verdicts = {pair: mark(call.answer, call.gold, rules) for pair in pairs for call in [make_comparison(pair)]}
    return [(each.answer, each.votes) for each in count_votes(answers, verdicts)]


@pytest.mark.parametrize(
    ("answers", "votes"),
    [
        (["5 m", "5 cm", "5 cm"], [("5 cm", 2), ("5 m", 1)]),
        (["5", "5 m", "5 cm", "5 cm"], [("5 cm", 3), ("5 m", 1)]),
        (["5 m", "5", "5 cm", "5 m", "5"], [("5 m", 4), ("5 cm", 1)]),
        (["5 cm", "5", "5", "5 m"], [("5", 3), ("5 m", 1)]),
        (["5 m", "5.0", "5", "5 cm"], [("5 m", 3), ("5 cm", 1)]),
        (["5 m", "500 cm", "5"], [("5 m", 2), ("5", 1)]),
        ([r"5\%", "5", "0.05"], [(r"5\%", 2), ("5", 1)]),
        (["5", "50%", "1/2", "0.5"], [("50%", 3), ("5", 1)]),
        (["x=5", "y=5", "5", "y=5"], [("y=5", 3), ("x=5", 1)]),
        (["x^2-1", "(x-1)(x+1)", "(x-1)(x+1)"], [("(x-1)(x+1)", 2), ("x^2-1", 1)]),
        (["(x-1)(x+1)", "x^2-1", "(x-1)(x+1)"], [("(x-1)(x+1)", 2), ("x^2-1", 1)]),
    ],
)
def test_answers_that_contradict_each_other_never_vote_together(
    answers: list[str], votes: list[tuple[str, int]]
) -> None:
    assert by_rules(answers) == votes


@pytest.mark.parametrize("name", ["math-dataset", "last-number"])
def test_rules_that_drop_signs_elect_no_answer(name: str) -> None:
    assert by_rules([r"5\%", "5", "0.05"], name) == [(r"5\%", 2), ("5", 1)]


def test_an_answer_that_contains_another_does_not_agree_with_it_in_either_order() -> None:
    for answers in (["Rome or Paris", "Paris", "Rome"], ["Rome", "Paris", "Rome or Paris"]):
        assert sorted(by_rules(answers, "contains")) == [("Paris", 1), ("Rome", 1), ("Rome or Paris", 1)]


@pytest.mark.parametrize("order", list(permutations(["5 cm", "5 cm", "5", "5 m"])))
def test_the_order_of_the_draws_settles_ties_alone(order: tuple[str, ...]) -> None:
    assert by_rules(order) == [("5 cm", 3), ("5 m", 1)]


def test_a_strict_verdict_alone_is_no_agreement() -> None:
    strict = {("a", "b"): Graded(math_verify=False, strict=True), ("b", "a"): Graded(math_verify=None, strict=True)}
    assert [each.votes for each in count_votes(["a", "b"], strict)] == [1, 1]


def test_a_candidate_names_its_ways_of_writing_in_the_order_of_the_draws() -> None:
    alike, other = Graded(math_verify=True, strict=False), Graded(math_verify=False, strict=False)
    verdicts = {pair: other if set(pair) == {"b", "c"} else alike for pair in permutations(["a", "b", "c"], 2)}
    first, second = count_votes(["a", "b", "c"], verdicts)
    assert (first.answer, first.written, second.written) == ("a", ("a", "b"), ("c",))


def test_a_dry_run_prices_every_draw_and_every_comparison() -> None:
    chosen = (SelfConsistencyParams(draws=20), SelfConsistencyParams(draws=5, weights="probability"))
    for each, draws, comparisons in zip(chosen, (20, 5), (380, 20), strict=True):
        params = Params(self_consistency=each)
        rounds = list(dry_run(make_placeholder_job("self-consistency", params), Item(ordinal=0, question="?")))
        assert [len(round_) for round_ in rounds] == [2, draws, comparisons]


def test_every_repeat_draws_its_own_answers() -> None:
    assert list_drawn_roles("self-consistency", Params(), "all") == {"generate"}
    assert list_drawn_roles("hybrid", Params(), "all") == set()
    assert list_drawn_roles("mathrag-gate", Params(), "none") == {"generate", "judge"}
