"""At which rank a search found an answer: what R@k is made of (document 002), and which needs no relevant documents."""

from collections.abc import Collection, Sequence

from shared.contracts.params import GradingParams
from shared.contracts.samples import Candidate, Item, Library
from shared.rag.graders import grader, members
from shared.rag.wording import phrase, words


def answers_of(item: Item, grading: GradingParams) -> set[str]:
    """Phrases of the item's gold answers; of `set` those of their members.

    Empty where the item has none, or where they are no texts that a document could hold: for `math` 1/2 and 0.5 are one
    answer, a choice is a letter, and a regular expression a pattern.
    """
    golds = () if item.gold is None else (item.gold, *item.expected.golds)
    found = grader(grading.grader)
    if not found.worded:
        return set()
    if found.name == "set":
        return {phrase(member) for gold in golds for member in members(gold, grading.separators) if member}
    return {phrase(answer) for gold in golds if (answer := words(gold))}


def answer_rank(candidates: Sequence[Candidate], answers: Collection[str], library: Library) -> int | None:
    """Rank, from 1, of the first candidate in whose normalised words one of the phrases `answers` occurs, or None.

    Raises:
        KeyError: `library` lacks a candidate.
    """
    for candidate in sorted(candidates, key=lambda each: each.rank):
        text = phrase(words(library[candidate.document].whole))
        if any(answer in text for answer in answers):
            return candidate.rank
    return None
