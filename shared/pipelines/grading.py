"""Grade every pipeline alike: read the answer from its text, grade it, and look for it in the retrieved documents."""

from collections.abc import Generator, Sequence
from typing import Any

from msgspec.structs import replace

from shared.calls import RELEASE_0_1, Duplicates, Grade, Retrieve, Yielded
from shared.params import GradingParams
from shared.rag import prompts
from shared.rag.duplicates import note_resembling_documents
from shared.rag.grading import find_answer_rank, get_grader, list_answer_phrases
from shared.replies import Failure, Graded, Marked, Rated
from shared.samples import Item, Library, Outcome, Steps, WrittenOutcome

Verdict = Graded | Marked
MATHEMATICS = GradingParams()


def run_and_grade(
    steps: Steps, item: Item, library: Library, grading: GradingParams = MATHEMATICS, rule: Duplicates = "same-answer"
) -> Steps:
    """Run `steps`, then grade the answer with the job's grader.

    An item without a gold answer is graded by a rubric only, which needs none. Documents of the prompt that all but
    repeat the question are noted, except with release 0.1's rule for near-duplicates, whose outcomes keep their bytes.
    """
    outcome, searched = yield from _run_steps(steps)
    if not isinstance(outcome, Outcome):
        raise TypeError(f"the pipeline returned {type(outcome).__name__}: return an Outcome")
    outcome = read_answer(outcome, grading)
    if searched and rule != RELEASE_0_1:
        noted = note_resembling_documents(item.question, outcome.context, library)
        outcome = replace(outcome, trace=replace(outcome.trace, decisions=(*outcome.trace.decisions, *noted)))
    if searched and (answers := list_answer_phrases(item, grading)):
        outcome = replace(outcome, answer_rank=find_answer_rank(outcome.trace.candidates, answers, library))
    if grading.grader == "rubric":
        if outcome.answer is None:
            return with_verdict(outcome, Marked(correct=False))
        reply: Rated | Failure = yield prompts.make_rating_call(outcome.answer, item, grading)
        if isinstance(reply, Failure):
            return with_verdict(outcome, reply)
        # Correct from the job's minimum rating on; the score is the rating itself.
        return with_verdict(outcome, Marked(correct=reply.rating >= grading.rating, score=float(reply.rating)))
    if item.gold is None:
        return outcome
    verdict: Verdict | Failure = yield Grade(answer=outcome.answer, gold=item.gold, expected=item.expected)
    return with_verdict(outcome, verdict)


def _run_steps(steps: Steps) -> Generator[Yielded, Any, tuple[Outcome, bool]]:
    """Run `steps`; return the outcome and whether it searched, because only a search can miss the answer."""
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
    """Return `outcome` with the answer that the grader finds in its text; without a text it keeps its answer."""
    if not isinstance(outcome, WrittenOutcome):
        return outcome
    return outcome.outcome(*get_grader(grading.grader).extract(outcome.text))


def with_verdict(outcome: Outcome, verdict: Verdict | Failure) -> Outcome:
    """Return `outcome` with the verdict, or with the kind of failure that left it without one."""
    if isinstance(verdict, Failure):
        return replace(outcome, grading_failure=verdict.kind.value)
    return replace(outcome, verdict=verdict)
