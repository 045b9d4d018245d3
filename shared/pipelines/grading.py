"""What comes after every pipeline: its answer is read from its text and graded, and looked for in what it found."""

from collections.abc import Generator, Sequence
from typing import Any

from msgspec.structs import replace

from shared.contracts.calls import Grade, Retrieve, Yielded
from shared.contracts.params import GradingParams
from shared.contracts.replies import Failure, Graded, Marked, Rated
from shared.contracts.samples import Item, Library, Outcome, Steps, WrittenOutcome
from shared.rag import rubric
from shared.rag.answer_rank import answer_rank, answers_of
from shared.rag.graders import grader

Verdict = Graded | Marked
MATHEMATICS = GradingParams()


def graded(steps: Steps, item: Item, library: Library, grading: GradingParams = MATHEMATICS) -> Steps:
    """`steps`, then a grade of its answer by the job's grader: every pipeline is graded alike.

    Without a gold answer nothing is graded but by a rubric, which needs none.
    """
    outcome, searched = yield from _searching(steps)
    outcome = read_answer(outcome, grading)
    if searched and (answers := answers_of(item, grading)):
        outcome = replace(outcome, answer_rank=answer_rank(outcome.trace.candidates, answers, library))
    if grading.grader == "rubric":
        return (yield from _rated(outcome, item, grading))
    if item.gold is None:
        return outcome
    verdict: Verdict | Failure = yield Grade(answer=outcome.answer, gold=item.gold, expected=item.expected)
    return with_verdict(outcome, verdict)


def _searching(steps: Steps) -> Generator[Yielded, Any, tuple[Outcome, bool]]:
    """`steps`, and whether it searched: a search that finds nothing has missed the answer, no search has not."""
    searched, reply = False, None
    while True:
        try:
            yielded = steps.send(reply)
        except StopIteration as stop:
            return stop.value, searched
        calls = yielded if isinstance(yielded, Sequence) else (yielded,)
        searched |= any(isinstance(call, Retrieve) for call in calls)
        reply = yield yielded


def read_answer(outcome: Outcome, grading: GradingParams) -> Outcome:
    """`outcome` with the answer that the job's grader finds in its text; one without a text keeps the answer it has."""
    if not isinstance(outcome, WrittenOutcome):
        return outcome
    return outcome.outcome(*grader(grading.grader).extract(outcome.text))


def _rated(outcome: Outcome, item: Item, grading: GradingParams) -> Steps:
    if outcome.answer is None:
        return with_verdict(outcome, Marked(correct=False))
    reply: Rated | Failure = yield rubric.rating(outcome.answer, item, grading)
    return with_verdict(outcome, reply if isinstance(reply, Failure) else rubric.verdict(reply, grading))


def with_verdict(outcome: Outcome, verdict: Verdict | Failure) -> Outcome:
    """`outcome` with the verdict, or with the reason why there is none."""
    if isinstance(verdict, Failure):
        return replace(outcome, grading_failure=verdict.kind.value)
    return replace(outcome, verdict=verdict)
