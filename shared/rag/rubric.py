"""Grade with the judge model: make the call that rates a reply by a rubric, and the verdict from its rating."""

from shared.calls import Judge
from shared.params import GradingParams
from shared.rag.language import localised
from shared.replies import Marked, Rated
from shared.samples import Item

RUBRIC = "The answer is correct and answers the question. Where there is a reference answer, it says the same."
"""Of a job and items that have none."""


def make_rating_call(answer: str, item: Item, grading: GradingParams) -> Judge:
    """Make the call that rates `answer` by the item's rubric, else the job's, else the default one."""
    golds = [*([] if item.gold is None else [item.gold]), *item.expected.golds]
    slots = {
        "answer": answer,
        "reference": f"Reference answer: {' or '.join(golds)}\n" if golds else "",
        "rubric": item.expected.rubric or grading.rubric or RUBRIC,
    }
    template = localised("answer-rubric", item.question)
    return Judge(rubric=template, question=item.question, slots=slots, decoding=grading.decoding)


def make_verdict(rated: Rated, grading: GradingParams) -> Marked:
    """Return correct from the job's minimum rating on; the score is the rating itself."""
    return Marked(correct=rated.rating >= grading.rating, score=float(rated.rating))
