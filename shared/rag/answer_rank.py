"""Find the rank at which a search found an answer: R@k is computed from it (document 002), without relevance
judgements.
"""

from collections.abc import Collection, Sequence

from shared.params import GradingParams
from shared.rag.graders import get_grader, split_members
from shared.rag.wording import join_phrase, normalise_words
from shared.samples import Candidate, Item, Library


def list_answer_phrases(item: Item, grading: GradingParams) -> set[str]:
    """Return the phrases of the item's gold answers; for `set`, those of their members.

    Empty where the item has none, or where they are no texts that a document could hold: for `math` 1/2 and 0.5 are one
    answer, a choice is a letter, and a regular expression a pattern.
    """
    golds = () if item.gold is None else (item.gold, *item.expected.golds)
    found = get_grader(grading.grader)
    if not found.worded:
        return set()
    if found.name == "set":
        return {join_phrase(member) for gold in golds for member in split_members(gold, grading.separators) if member}
    return {join_phrase(answer) for gold in golds if (answer := normalise_words(gold))}


def find_answer_rank(candidates: Sequence[Candidate], answers: Collection[str], library: Library) -> int | None:
    """Return the rank, from 1, of the first candidate whose normalised words contain one of `answers`, or None.

    Raises:
        KeyError: `library` lacks a candidate.
    """
    for candidate in sorted(candidates, key=lambda each: each.rank):
        text = join_phrase(normalise_words(library[candidate.document].whole))
        if any(answer in text for answer in answers):
            return candidate.rank
    return None
