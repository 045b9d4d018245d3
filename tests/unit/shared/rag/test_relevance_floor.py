"""The relevance floor of mathrag-gate: what is unrelated is not rated, and does not win."""

from shared import canonical
from shared.calls import Call, Judge, Rerank
from shared.params import Params, RerankParams
from shared.replies import Failure, FailureKind, Reply, Scored
from shared.samples import Decision, Outcome, Strategy
from tests.unit.shared.pipelines.test_pipelines import RATINGS, A, B, C, D, run, world

FLOOR = Params(rerank=RerankParams(floor=0.5))
RELEVANCE = {A: 0.9, B: 0.1, C: 0.5, D: 0.49}


def scored(call: Call) -> Reply:
    if isinstance(call, Rerank):
        return Scored(scores=tuple(RELEVANCE[document] for document in call.documents))
    return world(call)


def order(outcome: Outcome) -> list[str]:
    return [candidate.document for candidate in outcome.trace.candidates]


def test_a_well_reasoned_document_about_something_else_does_not_win() -> None:
    outcome, asked = run("mathrag-gate", scored, FLOOR)
    assert asked[1] == [Rerank(question="What is x?", documents=(C, A, B, D))]
    assert [call.document for call in asked[2] if isinstance(call, Judge)] == [C, A]
    assert RATINGS[C] > RATINGS[A]
    assert order(outcome) == [C, A, B, D]
    assert outcome.context == (C,)


def test_the_trace_says_how_relevant_each_was_and_how_many_were_left_out() -> None:
    outcome, _ = run("mathrag-gate", scored, FLOOR)
    last = outcome.trace.candidates[-1]
    assert [candidate.relevance for candidate in outcome.trace.candidates] == [0.5, 0.9, 0.1, 0.49]
    assert [candidate.rank for candidate in outcome.trace.candidates] == [1, 2, 3, 4]
    assert (last.quality, last.failure) == (None, None)
    assert outcome.trace.decisions == (
        Decision(stage="floor", action="floor", detail={"floor": 0.5, "below": 2.0}),
    )  # fmt: skip


def test_without_a_floor_nobody_is_asked() -> None:
    outcome, asked = run("mathrag-gate", scored)
    assert not any(isinstance(call, Rerank) for step in asked for call in step)
    assert outcome.trace.decisions == ()
    assert {candidate.relevance for candidate in outcome.trace.candidates} == {None}


def test_without_a_reranker_all_are_rated_and_the_trace_says_why() -> None:
    gone = Failure(kind=FailureKind.NOT_CONFIGURED)
    outcome, _ = run("mathrag-gate", lambda call: gone if isinstance(call, Rerank) else world(call), FLOOR)
    assert order(outcome) == order(run("mathrag-gate")[0])
    assert outcome.trace.decisions == (Decision(stage="floor", action="none", fallback="not_configured"),)


def test_where_nothing_is_relevant_nothing_is_rated() -> None:
    outcome, asked = run("mathrag-gate", scored, Params(rerank=RerankParams(floor=0.95)))
    assert not any(isinstance(call, Judge) for step in asked for call in step)
    assert order(outcome) == [C, A, B, D]
    assert not outcome.trace.unscored


def test_a_relevant_document_whose_judgement_failed_stays_before_the_unrelated() -> None:
    def answer(call: Call) -> Reply:
        failed = isinstance(call, Judge) and call.document == A
        return Failure(kind=FailureKind.UNPARSED) if failed else scored(call)

    outcome, _ = run("mathrag-gate", answer, FLOOR)
    assert order(outcome) == [C, A, B, D]
    assert outcome.trace.candidates[1].failure == "unparsed"
    assert not outcome.trace.unscored


def test_relevant_documents_none_of_which_could_be_rated_are_unscored() -> None:
    broken = Failure(kind=FailureKind.CONNECTION)
    outcome, _ = run("mathrag-gate", lambda call: broken if isinstance(call, Judge) else scored(call), FLOOR)
    assert outcome.trace.unscored


def test_the_floor_holds_for_rules_too() -> None:
    outcome, asked = run("mathrag-gate", scored, FLOOR, Strategy.RULES)
    assert {type(call).__name__ for step in asked for call in step} == {"Retrieve", "Rerank", "Generate"}
    assert [candidate.quality is None for candidate in outcome.trace.candidates] == [False, False, True, True]


def test_replay_repeats_the_floor() -> None:
    first, again = (run("mathrag-gate", scored, FLOOR) for _ in range(2))
    assert canonical.encode(first) == canonical.encode(again)
