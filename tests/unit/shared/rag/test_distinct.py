"""Documents that differ by case, blanks or forms of characters alone."""

import hashlib

from shared.rag.retrieval import drop_duplicates, hash_content
from shared.replies import Document

FIRST = Document(problem="What is 2+2?", text="It is  4.")
AGAIN = Document(problem="what is 2+2?", text="It is\n4. ")
WIDE = Document(problem="What is ２+2?", text="It is 4.")
OTHER = Document(problem="What is 2+2?", text="It is 4!")
POWER = Document(problem="What is 2²?", text="It is 4.")
PLAIN = Document(problem="What is 22?", text="It is 4.")
LIBRARY = {document.hash: document for document in (FIRST, AGAIN, WIDE, OTHER, POWER, PLAIN)}


def test_the_first_of_equal_documents_stays() -> None:
    assert len(LIBRARY) == 6
    assert drop_duplicates([AGAIN.hash, OTHER.hash, FIRST.hash, WIDE.hash], LIBRARY) == (AGAIN.hash, OTHER.hash)


def test_a_square_is_not_a_digit() -> None:
    assert drop_duplicates([POWER.hash, PLAIN.hash], LIBRARY) == (POWER.hash, PLAIN.hash)


def test_solutions_that_begin_alike_are_two() -> None:
    long = "Let x be a number. " * 20
    assert hash_content(Document(text=long + "1")) != hash_content(Document(text=long + "2"))


def test_problem_and_text_do_not_run_together() -> None:
    assert hash_content(Document(problem="ab", text="c")) != hash_content(Document(problem="a", text="bc"))


def test_content_is_the_same_in_every_process() -> None:
    assert hash_content(Document(text="A")) == hashlib.sha256(b"\0a").digest()
