"""What comes after every pipeline: its answer is read from its text, and graded by the job's grader."""

from msgspec.structs import replace

from shared.contracts.calls import Grade
from shared.contracts.params import GradingParams
from shared.contracts.replies import Failure, Graded, Marked, Rated
from shared.contracts.samples import Item, Outcome, Steps, WrittenOutcome
from shared.rag import rubric
from shared.rag.graders import grader

Verdict = Graded | Marked
MATHEMATICS = GradingParams()


def graded(steps: Steps, item: Item, grading: GradingParams = MATHEMATICS) -> Steps:
    """`steps`, then a grade of its answer by the job's grader: every pipeline is graded alike.

    Without a gold answer nothing is graded but by a rubric, which needs none.
    """
    outcome = read_answer((yield from steps), grading)
    if grading.grader == "rubric":
        return (yield from _rated(outcome, item, grading))
    if item.gold is None:
        return outcome
    verdict: Verdict | Failure = yield Grade(answer=outcome.answer, gold=item.gold, expected=item.expected)
    return with_verdict(outcome, verdict)


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
