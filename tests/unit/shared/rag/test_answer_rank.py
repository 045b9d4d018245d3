"""Where an answer occurs in what was found, by the normalised words of its grader."""

from collections.abc import Iterator

import pytest

from shared.calls import Expected
from shared.params import GradingParams
from shared.rag.grading import find_answer_rank, list_answer_phrases
from shared.replies import Document
from shared.samples import Candidate, Item, Library

TEXTS = ("Time 3 Barack Obama visit Kenya.", "Time 4 Angela Merkel host the U.S. president.", "Paris, in France")
LIBRARY = {str(place): Document(text=text) for place, text in enumerate(TEXTS)}
CANDIDATES = [Candidate(document=str(place), rank=place + 1) for place in range(len(TEXTS))]


def rank(gold: str, *golds: str, grader: str = "text", library: Library = LIBRARY, separators: str = "") -> int | None:
    item = Item(ordinal=0, question="?", gold=gold, expected=Expected(golds=golds))
    grading = GradingParams(grader=grader, separators=separators)  # type: ignore[arg-type]
    return find_answer_rank(CANDIDATES[::-1], list_answer_phrases(item, grading), library)


@pytest.mark.parametrize(
    ("gold", "found"),
    [
        ("the KENYA", 1),
        ("Angela Merkel", 2),
        ("US president", 2),
        ("Paris in France", 3),
        ("Merkel Angela", None),
        ("Ken", None),
        ("Kenya Time", None),
    ],
)
def test_an_answer_is_found_where_its_words_follow_each_other(gold: str, found: int | None) -> None:
    assert rank(gold) == found


def test_the_first_document_with_any_of_the_answers_counts() -> None:
    assert rank("Paris", "Merkel") == 2


def test_any_member_of_a_set_counts() -> None:
    assert rank("{Rome, Angela Merkel}", grader="set") == 2
    assert rank("{Rome, Angela Merkel}", grader="text") is None
    assert rank("Rome | Kenya", grader="set", separators="|") == 1


def test_a_problem_is_a_part_of_its_document() -> None:
    assert rank("Rome", library={**LIBRARY, "1": Document(problem="Where is Rome?", text="Here.")}) == 2


@pytest.mark.parametrize("grader", ["math", "", "choice", "regex", "rubric"])
def test_gold_answers_that_are_no_texts_are_not_looked_for(grader: str) -> None:
    item = Item(ordinal=0, question="?", gold="Kenya")
    assert list_answer_phrases(item, GradingParams(grader=grader)) == set()  # type: ignore[arg-type]


def test_an_item_without_gold_answers_has_nothing_to_look_for() -> None:
    text, sets = GradingParams(grader="text"), GradingParams(grader="set")
    assert list_answer_phrases(Item(ordinal=0, question="?"), text) == set()
    assert list_answer_phrases(Item(ordinal=0, question="?", gold=" "), text) == set()
    assert list_answer_phrases(Item(ordinal=0, question="?", gold="{}"), sets) == set()


class Read(dict[str, Document]):
    def __init__(self) -> None:
        super().__init__(LIBRARY)
        self.reads: list[str] = []

    def __getitem__(self, document: str) -> Document:
        self.reads.append(document)
        return super().__getitem__(document)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all documents are read")


def test_a_thousand_answers_read_each_document_once_and_none_behind_the_first_with_one() -> None:
    library = Read()
    many = [f"nobody {number}" for number in range(1000)]
    assert rank("Merkel", *many, library=library) == 2
    assert library.reads == ["0", "1"]
