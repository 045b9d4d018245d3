"""Grade every pipeline in the same way: read the answer from its text, grade it, look for it in the documents, measure
it."""

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from mathrag.reasoning import remove_reasoning
from shared.calls import RELEASE_0_1, Generate, Grade, Retrieve, Yielded
from shared.params import GradingParams, Params
from shared.rag import prompts
from shared.rag.answer_metrics import MeasuredAnswer, measure_answer
from shared.rag.duplicates import note_resembling_documents
from shared.rag.grading import find_answer_rank, get_grader, list_answer_phrases
from shared.replies import Failure, Generated, Graded, Marked, Rated
from shared.samples import Control, Given, Item, Library, Outcome, Steps, Stored, WrittenOutcome

Verdict = Graded | Marked
DEFAULTS = Params()


def run_and_grade(
    steps: Steps,
    item: Item,
    library: Library,
    params: Params = DEFAULTS,
    control: Control | None = None,
    given: Stored | None = None,
) -> Steps:
    """Run `steps`, then grade the answer with the job's grader, and measure the job's metrics.

    `given` is the stored input of the sample: for an answer from elsewhere, the reply and the search.
    """
    ran = yield from _run_steps(steps)
    outcome = yield from _grade(ran, item, library, params)
    if not params.metrics.names:
        return outcome
    if isinstance(given, Given):
        ran = ran._replace(text=given.reply, passage=given.passage, searched=given.contexts is not None)
    answer = MeasuredAnswer(
        item=item,
        reply=remove_reasoning(ran.text).strip(),
        context=outcome.context,
        passage=ran.passage,
        searched=ran.searched,
        refused=outcome.refusal is not None,
        library=library,
        params=params.metrics,
    )
    scores, controls = yield from measure_answer(answer, control)
    return replace(outcome, metrics=scores, controls=msgspec.UNSET if controls is None else controls)


class _Ran(NamedTuple):
    """A pipeline that ended."""

    outcome: Outcome
    searched: bool
    """Whether it searched, because only a search can miss the answer."""
    text: str
    """The whole reply, or the answer alone if that is all there is."""
    passage: str
    """The text in place of the documents in the prompt of the reply."""


def _run_steps(steps: Steps) -> Generator[Yielded, Any, _Ran]:
    searched, reply = False, None
    passages: dict[str, str] = {}
    while True:
        try:
            yielded = steps.send(reply)
        except StopIteration as stop:
            outcome = stop.value
            break
        reply = yield yielded
        calls, replies = (yielded, reply) if isinstance(yielded, Sequence) else ((yielded,), (reply,))
        searched |= any(isinstance(call, Retrieve) for call in calls)
        for call, given in zip(calls, replies, strict=True):
            # Self-RAG's passages are the beginnings of replies, and have no context.
            if isinstance(call, Generate) and call.context and call.passage and isinstance(given, Generated):
                passages[given.text] = call.passage
    if not isinstance(outcome, Outcome):
        raise TypeError(f"the pipeline returned {type(outcome).__name__}: return an Outcome")
    text = outcome.text if isinstance(outcome, WrittenOutcome) else outcome.answer or ""
    return _Ran(outcome, searched, text, passages.get(text, ""))


def _grade(ran: _Ran, item: Item, library: Library, params: Params) -> Steps:
    """Return the outcome with the verdict of the job's grader.

    An item without a gold answer is graded by a rubric only, which needs none. Documents of the prompt that all but
    repeat the question are noted, except with release 0.1's rule for near-duplicates, whose outcomes keep their bytes.
    """
    grading = params.grading
    outcome = read_answer(ran.outcome, grading)
    if ran.searched and params.duplicates != RELEASE_0_1:
        noted = note_resembling_documents(item.question, outcome.context, library)
        outcome = replace(outcome, trace=replace(outcome.trace, decisions=(*outcome.trace.decisions, *noted)))
    if ran.searched and (answers := list_answer_phrases(item, grading)):
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
