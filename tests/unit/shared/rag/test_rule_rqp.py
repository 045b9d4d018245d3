"""Rule-RQP: the four features, the length factor, and the score."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.rag import gate
from shared.rag.gate import score_document, score_text
from shared.replies import Document
from tests.unit.cases import named

FILLER = "we look at the words of this sentence and then at those of the next one and so on until it ends "
PIECES = st.sampled_from(
    [
        "Therefore ",
        "Step 1. ",
        r"\begin{align} ",
        r"\boxed{3} ",
        "x = 2 ",
        r"\implies ",
        "apple ",
        "\n1. ",
        "因此",
        "é🙂 ",
    ]
)
TEXTS = st.one_of(st.text(max_size=300), st.lists(PIECES, max_size=60).map("".join))


@given(TEXTS)
def test_score_and_features_lie_between_0_and_1(text: str) -> None:
    scored = score_text(text)
    assert all(0 <= value <= 1 for value in [scored.score, *scored.features.values()])


@given(TEXTS)
def test_score_is_the_papers_weighted_sum_scaled_by_length(text: str) -> None:
    s = score_text(text)
    form = 0.3 * s.logic + 0.3 * s.structure + 0.25 * s.math + 0.15 * s.box
    assert s.score == pytest.approx(s.length * form)


def test_the_weights_add_up_to_one() -> None:
    text = r"Step 1. Since \( x = 1 \) Step 2. Therefore \( y = 2 \). Hence \( x + y = 3 \) = \boxed{3} * 4 + 5 = 17"
    assert score_text(text).score == pytest.approx(1.0)


def test_the_empty_text_scores_nothing() -> None:
    assert score_text("").score == 0
    assert score_text("  \n ").math == 0


def test_each_connective_counts_once() -> None:
    connectives = [
        "Therefore", "THUS", "hence", "since", "Because", "so that", "so\nthat", "implies", r"\implies", r"\Rightarrow",
        r"\therefore", "consequently", "it follows", "⇒", "∴", "因为", "所以", "因此",
    ]  # fmt: skip
    texts = [f"a {connective} b" for connective in connectives]
    assert {text: found for text in texts if (found := named(score_text, text).logic) != pytest.approx(1 / 3)} == {}


def test_words_that_only_look_like_connectives_do_not_count() -> None:
    words = ["thusly", "insince", "so, that", r"\impliesfoo", "sincere", "whence", "so it is that"]
    texts = [f"a {word} b" for word in words]
    assert {text: found for text in texts if (found := named(score_text, text).logic) != 0} == {}


def test_logic_grows_with_connectives_and_saturates_at_three() -> None:
    marks = [score_text("Thus x. " * n).logic for n in range(6)]
    assert marks == pytest.approx([0, 1 / 3, 2 / 3, 1, 1, 1])


def test_each_structure_marker_counts_once() -> None:
    markers = [
        "Step 1", "step 12:", r"\begin{align}", r"\begin{cases}", r"\item", "1. first", "  2) second", "(3) third",
        "第一步", "第2步",
    ]  # fmt: skip
    texts = [f"{marker} and so on" for marker in markers]
    assert {text: found for text in texts if (found := named(score_text, text).structure) != 0.5} == {}


def test_text_that_only_looks_structured_does_not_count() -> None:
    texts = ["3.5 is a number", "the 1. place", "stepping 1", "a step", r"\itemize", r"\end{align}", "2024. Year"]
    assert {text: found for text in texts if (found := named(score_text, text).structure) != 0} == {}


def test_structure_saturates_at_two() -> None:
    assert [score_text("Step 1 " * n).structure for n in range(4)] == [0, 0.5, 1, 1]


def test_mathematics_is_judged_by_its_share_of_the_tokens() -> None:
    assert score_text("one two three 4").math == pytest.approx(0.5)
    assert score_text("one two + 4").math == 1
    assert score_text("one two three four").math == 0


def test_prose_dilutes_mathematics() -> None:
    assert score_text("so x = 2" + " word" * 20).math < score_text("so x = 2" + " word" * 10).math


def test_letters_that_are_words_are_not_variables() -> None:
    assert score_text("a A I").math == 0
    assert score_text("x").math == 1


@pytest.mark.parametrize(
    ("text", "box"), [(r"\boxed{5}", 1), (r"\boxed {5}", 1), ("boxed 5", 0), (r"\fbox{5}", 0), ("", 0)]
)
def test_a_box_is_there_or_not(text: str, box: float) -> None:
    assert score_text(text).box == box


def test_short_texts_are_scaled_down_in_proportion() -> None:
    assert score_text("word " * 5).length == pytest.approx(0.25)
    assert score_text("word " * 19).length < 1
    assert score_text("word " * 20).length == 1


def test_overlong_texts_lose_a_fifth_at_most() -> None:
    assert score_text("word " * 400).length == 1
    assert score_text("word " * 450).length == pytest.approx(400 / 450)
    assert score_text("word " * 5000).length == 0.8


@given(st.integers(0, 5), st.integers(0, 5))
def test_more_connectives_never_lower_a_text_of_fitting_length(fewer: int, more: int) -> None:
    low, high = sorted((fewer, more))
    texts = [FILLER + "therefore " * n + "moreover " * (5 - n) for n in (low, high)]
    assert score_text(texts[0]).score <= score_text(texts[1]).score


def test_a_box_raises_the_score() -> None:
    plain = FILLER + "the answer is 14"
    assert score_text(plain + r" \boxed{14}").score > score_text(plain).score


def test_worked_steps_beat_a_bare_answer() -> None:
    worked = r"Step 1. Since multiplication comes first, 3*4=12. Step 2. Therefore 2+12=14. The answer is \boxed{14}."
    assert score_text("The answer is 5.").score < 0.1
    assert score_text(worked).score > 0.8


def test_a_document_is_scored_by_its_solution_alone() -> None:
    document = Document(problem=r"Step 1. Therefore \boxed{1}", text="The answer is 5.")
    assert score_document(document) == score_text("The answer is 5.")


def test_a_document_is_scored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(gate, "score_text", lambda text: calls.append(text) or score_text(text))
    for _ in range(3):
        score_document(Document(problem="p", text="scored once only"))
    assert calls == ["scored once only"]
