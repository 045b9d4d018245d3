"""The judge model as a grader: the call that rates a reply by a rubric, and the verdict that its rating is."""

from shared.contracts.calls import Judge
from shared.contracts.params import GradingParams
from shared.contracts.replies import Marked, Rated
from shared.contracts.samples import Item
from shared.rag.language import localised

RUBRIC = "The answer is correct and answers the question. Where there is a reference answer, it says the same."
"""Of a job and items that have none."""


def rating(answer: str, item: Item, grading: GradingParams) -> Judge:
    """The call that has `answer` rated: by the item's rubric, else by the job's, else by the default one."""
    golds = [*([] if item.gold is None else [item.gold]), *item.expected.golds]
    slots = {
        "answer": answer,
        "reference": f"Reference answer: {' or '.join(golds)}\n" if golds else "",
        "rubric": item.expected.rubric or grading.rubric or RUBRIC,
    }
    template = localised("answer-rubric", item.question)
    return Judge(rubric=template, question=item.question, slots=slots, decoding=grading.decoding)


def verdict(rated: Rated, grading: GradingParams) -> Marked:
    """Right from the rating on that the job says; the score is the rating itself."""
    return Marked(correct=rated.rating >= grading.rating, score=float(rated.rating))
