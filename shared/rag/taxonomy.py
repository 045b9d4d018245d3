"""How a sample ended, in one word and a reason: the first rule that applies (docs/explanation/statistics.md, Endings).

The MathRAG-Gate paper, 5.2, compares logic errors and retrieval misses between pipelines without saying how they were
told apart. These rules tell, from what is stored, and name a cause only where the rows show one.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

import msgspec

from shared.rag.candidates import sort_as_found
from shared.replies import FailureKind
from shared.samples import Candidate, Extraction


class Ending(StrEnum):
    """How a sample ended. Wrong answers are those from `truncated` to `logic`."""

    CORRECT = "correct"
    """The answer is correct by math-verify, as in a report's accuracy."""
    REFUSED = "refused"
    """No answer, on purpose: the method declined, or the model gave an empty text."""
    FAILED = "failed"
    """No answer, since something broke."""
    TRUNCATED = "truncated"
    """Wrong, and the model did not end the text: the token limit did, or the server."""
    EXTRACTION = "extraction"
    """A whole text without an answer in it."""
    RETRIEVAL_MISS = "retrieval_miss"
    """Wrong, and no relevant document was found."""
    JUDGE_FAILURE = "judge_failure"
    """Wrong, and a missing score decided what stood in the prompt."""
    ARITHMETIC = "arithmetic"
    """Wrong, and an equation of numbers in the text does not hold."""
    LOGIC = "logic"
    """Wrong, and none of the above: what is left is how it was reasoned."""
    UNGRADED = "ungraded"
    """Nobody can say: no gold answer, no verdict, or two graders that contradict each other about a wrong answer."""


class SampleFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a sample that completed or failed."""

    failure: str | None = None
    """Kind; None: it completed."""
    refusal: str | None = None
    correct: bool | None = None
    """The verdict of the job's grader."""
    mathematics: bool = True
    """Whether the job's grader was math-verify."""
    grading_failure: str | None = None
    strict: bool | None = None
    """The verdict of the strict rules."""
    gold: bool = True
    """Whether the item has a gold answer."""
    extraction: Extraction = Extraction.OK
    truncated: bool = False
    truncated_by: str = ""
    """"": the token limit."""
    imported: bool = False
    """Whether another system answered, so that nothing is known of its prompt."""
    searched: bool = False
    """Whether the sample asked for documents at all."""
    relevant: frozenset[str] | None = None
    """Hashes of the relevant documents; None: the dataset does not say, so that nothing can have been missed."""
    candidates: tuple[Candidate, ...] = ()
    context: tuple[str, ...] = ()
    unscored: bool = False
    """Scoring was asked for, and no candidate has a score."""
    refuted: tuple[str, ...] = ()
    """Equations of the text that do not hold."""


class EndedSample(NamedTuple):
    """An ending with the rule's reason in words."""

    ending: Ending
    reason: str


CUTS = {
    "": "the token limit ended the text",
    "repetition": "the model server ended the text, as it repeated itself",
    "broken_byte": "a byte that is no UTF-8 ended the text",
    "cut": "the model server ended the text and did not say why",
    "content_filter": "the model server's filter ended the text",
}
"""How a text ended that the model did not end, by what ended it."""

Rule = Callable[[SampleFacts], EndedSample | None]


NOT_FOUND = {
    Extraction.MISSING: "the reply marks or states no answer",
    Extraction.UNBALANCED: "a box that never closes",
    Extraction.EMPTY: "the reply is empty",
    Extraction.ONLY_REASONING: "the reply ends in its reasoning",
}


def classify_ending(facts: SampleFacts) -> EndedSample:
    """Return the ending by the first rule that applies; the last rule always does."""
    return next(found for rule in RULES if (found := rule(facts)) is not None)


def _check_failed(facts: SampleFacts) -> EndedSample | None:
    if facts.failure == FailureKind.REFUSED:
        return EndedSample(Ending.REFUSED, "the model gave an empty text")
    return None if facts.failure is None else EndedSample(Ending.FAILED, facts.failure)


def _check_refused(facts: SampleFacts) -> EndedSample | None:
    if facts.refusal is None and facts.extraction is not Extraction.REFUSED:
        return None
    return EndedSample(Ending.REFUSED, facts.refusal or "nothing was generated, on purpose")


def _correct(facts: SampleFacts) -> EndedSample | None:
    if not facts.correct:
        return None
    if not facts.mathematics:
        return EndedSample(Ending.CORRECT, "the job's grader")
    return EndedSample(Ending.CORRECT, "math-verify" if facts.strict else "math-verify; by the strict rules it is not")


def _check_truncated(facts: SampleFacts) -> EndedSample | None:
    if not facts.truncated or (facts.extraction is Extraction.OK and _explain_undecided(facts)):
        return None
    held = "its answer is from before that" if facts.extraction is Extraction.OK else "it holds no answer"
    return EndedSample(Ending.TRUNCATED, f"{CUTS.get(facts.truncated_by, facts.truncated_by)}; {held}")


def _extraction(facts: SampleFacts) -> EndedSample | None:
    reason = NOT_FOUND.get(facts.extraction)
    return EndedSample(Ending.EXTRACTION, reason) if reason else None


def _check_ungraded(facts: SampleFacts) -> EndedSample | None:
    reason = _explain_undecided(facts)
    return EndedSample(Ending.UNGRADED, reason) if reason else None


def _explain_undecided(facts: SampleFacts) -> str | None:
    """Return why an answer that was not graded as correct is not known to be wrong either."""
    if facts.grading_failure is not None:
        return f"the grader gave no verdict: {facts.grading_failure}"
    if facts.correct is None and not facts.gold:
        return "there is no gold answer"
    if facts.correct is None:
        return "math-verify gave no verdict"
    return "math-verify says wrong, the strict rules say correct" if facts.strict else None


def _retrieval_miss(facts: SampleFacts) -> EndedSample | None:
    if not facts.searched or not facts.relevant or facts.relevant & _list_found(facts):
        return None
    return EndedSample(Ending.RETRIEVAL_MISS, f"none of the relevant documents ({len(facts.relevant)}) was found")


def _judge_failure(facts: SampleFacts) -> EndedSample | None:
    if facts.unscored:
        return EndedSample(
            Ending.JUDGE_FAILURE, "no candidate has a score: the prompt is as if nothing had been scored"
        )
    if (displaced := _find_displaced(facts)) is not None:
        where = "stands in the prompt" if displaced.document in facts.context else "would have stood in the prompt"
        return EndedSample(
            Ending.JUDGE_FAILURE, f"document {displaced.document[:12]} {where}, unscored: {displaced.failure}"
        )
    return None


def _arithmetic(facts: SampleFacts) -> EndedSample | None:
    return EndedSample(Ending.ARITHMETIC, f"does not hold: {facts.refuted[0]}") if facts.refuted else None


def _logic(facts: SampleFacts) -> EndedSample | None:
    return EndedSample(Ending.LOGIC, f"nothing else is known to be wrong; {_describe_prompt(facts)}")


RULES: tuple[Rule, ...] = (
    _check_failed, _check_refused, _correct, _check_truncated, _extraction, _check_ungraded, _retrieval_miss,
    _judge_failure, _arithmetic, _logic,
)  # fmt: skip
"""In the order in which they are asked: what there is no arguing about first, then from the search to the text."""


def _list_found(facts: SampleFacts) -> frozenset[str]:
    return frozenset(facts.context).union(each.document for each in facts.candidates)


def _find_displaced(facts: SampleFacts) -> Candidate | None:
    """Find a candidate without a score that is in the prompt, or would be without the other scores."""
    before = sort_as_found(facts.candidates)[: len(facts.context)]
    affected = {*facts.context, *(each.document for each in before)}
    return next((each for each in facts.candidates if each.failure is not None and each.document in affected), None)


def _describe_prompt(facts: SampleFacts) -> str:
    """Describe what the prompt contained, if the relevant documents are known."""
    if facts.imported:
        return "the answer was imported, and it is not known what stood in the prompt"
    if not facts.context:
        return "there was no document in the prompt"
    if not facts.relevant:
        return "it is not known which documents are relevant"
    if facts.relevant.intersection(facts.context):
        return "a relevant document stood in the prompt"
    ranks = [each.rank for each in facts.candidates if each.document in facts.relevant]
    where = f"was ranked {min(ranks)} and" if ranks else "was not searched for, and"
    return f"the best relevant document {where} did not stand in the prompt"
