"""Context compression: what stays of documents under a ratio and a number of tokens."""

from hypothesis import given
from hypothesis import strategies as st

from shared.params import CompressParams
from shared.rag.answering import CompressedContext, compress
from shared.rag.prompts import show_documents
from shared.rag.text import estimate_tokens, split_sentences
from shared.replies import Document

QUESTION = "What is the area of the triangle?"
LONG = (
    "First we draw the triangle. The weather was nice. Its base is $b = 4. 0$ and its height is 3. "
    "Some people like music. The area of the triangle is $\\frac{1}{2} b h$. So the area is \\boxed{6}."
)
SENTENCES = st.sampled_from(
    [
        "The area is 6. ", "So x = 3. ", "We know that $a. b = c$ holds. ", r"Then \[x = 1.\] ", "It rains today. ",
        "We know that $a. b = c$ holds here. ", "鸭子每天下蛋。", "A triangle has three sides and three corners. ",
        "Why? ",
    ]
)  # fmt: skip
BODIES = st.lists(SENTENCES, max_size=8).map("".join)
DOCUMENTS = st.lists(st.builds(Document, problem=st.sampled_from(["", "A problem?"]), text=BODIES), max_size=4)


def compressed(
    *documents: Document, question: str = QUESTION, ratio: float = 0.7, size: int = 4000
) -> CompressedContext:
    library = {document.hash: document for document in documents}
    return compress(question, list(library), library, CompressParams(ratio=ratio, tokens=size))


def context(found: CompressedContext, *documents: Document) -> str:
    library = {document.hash: document for document in documents}
    return found.passage or show_documents([library[each] for each in found.documents])


def test_what_has_nothing_to_do_with_the_question_goes_first() -> None:
    document = Document(problem="Find it.", text=LONG)
    found = compressed(document, ratio=0.6)
    assert found.documents == (document.hash,)
    assert found.passage.startswith("Problem: Find it.\nSolution: First we draw the triangle.")
    assert found.passage.endswith("So the area is \\boxed{6}.\n\n")
    assert "music" not in found.passage
    assert "weather" not in found.passage
    assert "$\\frac{1}{2} b h$" in found.passage


def test_the_figures_of_a_compression_are_recorded() -> None:
    document = Document(problem="Find it", text=LONG)
    found = compressed(document)
    detail = found.decision.detail
    before, after = estimate_tokens(show_documents([document])), estimate_tokens(found.passage)
    assert (found.decision.stage, found.decision.action) == ("compress", "compressed")
    assert (detail["tokens before"], detail["tokens after"], detail["ratio"]) == (before, after, after / before)
    assert (detail["sentences"], detail["dropped"]) == (6.0, 6.0 - len(split_sentences(found.passage)))


def test_a_repeated_sentence_goes_and_the_first_one_stays() -> None:
    first = Document(text="The product of all of the roots of this monic polynomial is its last coefficient. So 3.")
    again = Document(text="So 3. The product of all of the roots of this monic polynomial is its last coefficient.")
    found = compressed(first, again, ratio=0.99)
    assert (
        found.passage == "The product of all of the roots of this monic polynomial is its last coefficient. So 3.\n\n"
    )
    assert found.documents == (first.hash,)


def test_different_figures_are_no_repetition() -> None:
    found = compressed(Document(text="So x = 3. It rains. So x = 4."), ratio=0.8)
    assert found.passage == "So x = 3. So x = 4.\n\n"


def test_a_document_of_which_nothing_stays_is_not_shown() -> None:
    near = Document(problem="Area?", text="The area of the triangle is 6.")
    far = Document(problem="Music?", text="Some people listen to many kinds of music.")
    found = compressed(near, far, ratio=0.5)
    assert found.documents == (near.hash,)
    assert found.passage == "Problem: Area?\nSolution: The area of the triangle is 6.\n\n"


def test_one_sentence_stays_whatever_the_ratio() -> None:
    document = Document(text="The area of the triangle is 6.")
    assert compressed(document, ratio=0.1) == compressed(document, ratio=1)


def test_a_ratio_of_one_and_enough_tokens_change_nothing() -> None:
    document = Document(text="So x = 3. So x = 3.")
    found = compressed(document, ratio=1)
    assert (found.documents, found.passage, found.decision.action) == ((document.hash,), "", "unchanged")


def test_nothing_is_shown_where_nothing_fits() -> None:
    found = compressed(Document(text="The circumference of this particular circle is approximately eighteen."), size=16)
    assert (found.documents, found.passage, found.decision.detail["tokens after"]) == ((), "", 0.0)


def test_no_documents_are_no_error() -> None:
    assert compressed().documents == ()
    assert compressed().decision.detail["ratio"] == 1.0


def test_a_problem_that_alone_is_too_long_takes_its_document_along() -> None:
    wordy = "What is the remainder when the following enormous number is divided by seven?"
    assert compressed(Document(problem=wordy, text="It is 3."), size=16).documents == ()
    assert compressed(Document(problem=wordy, text=""), size=16).documents == ()


@given(DOCUMENTS, st.floats(0, 1), st.integers(16, 80))
def test_the_tokens_are_never_exceeded(documents: list[Document], ratio: float, size: int) -> None:
    found = compressed(*documents, ratio=ratio, size=size)
    assert estimate_tokens(context(found, *documents)) <= size


@given(DOCUMENTS, st.floats(0, 1), st.integers(16, 80))
def test_what_stays_are_whole_sentences_in_order(documents: list[Document], ratio: float, size: int) -> None:
    found = compressed(*documents, ratio=ratio, size=size)
    library = {document.hash: document for document in documents}
    rest = context(found, *documents)
    for hash_ in found.documents:
        if library[hash_].problem:
            rest = rest.removeprefix(f"Problem: {library[hash_].problem}\nSolution: ")
        for sentence in split_sentences(library[hash_].text):
            rest = rest.lstrip().removeprefix(sentence.strip())
        rest = rest.lstrip()
    assert rest.strip() == ""


@given(BODIES, st.integers(16, 80))
def test_what_fits_is_left_alone_the_second_time(body: str, size: int) -> None:
    once = context(compressed(Document(text=body), ratio=1, size=size), Document(text=body))
    again = Document(text=once.strip())
    assert context(compressed(again, ratio=1, size=size), again).strip() == once.strip()


@given(DOCUMENTS, st.floats(0, 1), st.integers(16, 80))
def test_the_same_documents_always_leave_the_same(documents: list[Document], ratio: float, size: int) -> None:
    assert compressed(*documents, ratio=ratio, size=size) == compressed(*documents, ratio=ratio, size=size)
