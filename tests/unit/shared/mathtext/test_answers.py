r"""Finding the last `\boxed{}`."""

from hypothesis import given
from hypothesis import strategies as st

from shared.mathtext.answers import extract
from shared.samples import Extraction
from tests.unit.cases import named

BALANCED = st.recursive(
    st.sampled_from(["1", "x", "+", r"\{", r"\}", r"\frac", " ", r"\\"]),
    lambda inner: st.lists(inner, max_size=3).map(lambda parts: "{" + "".join(parts) + "}"),
    max_leaves=8,
)
CONTENT = st.lists(BALANCED, min_size=1, max_size=4).map("".join).filter(str.strip)
NO_BOX = st.text(alphabet="abc $\n.1{", max_size=30)


def test_the_last_balanced_box_is_the_answer() -> None:
    cases = [
        (r"The answer is \boxed{5}.", "5"),
        (r"\boxed{6} wait, \boxed{5}", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\text{a {b} c}}", r"\text{a {b} c}"),
        (r"\fbox{7}", "7"),
        (r"\boxed{1} and \fbox{2}", "2"),
        (r"\fbox{1} and \boxed{2}", "2"),
        (r"\boxed {8}", "8"),
        (r"\boxed{ 9 }", "9"),
        ("\\boxed{\n10\n}", "10"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\{}", r"\{"),
        (r"\boxed{x = \boxed{3}}", "3"),
        (r"line\\\boxed{4}", "4"),
        (r"stray } brace \boxed{4} and { another", "4"),
    ]
    wrong = {text: found for text, answer in cases if (found := named(extract, text)) != (answer, Extraction.OK)}
    assert wrong == {}


def test_a_box_without_braces_holds_the_next_word() -> None:
    cases = [
        (r"$\boxed 2$.", "2"),
        (r"\boxed 5.", "5"),
        (r"\boxed 5 apples", "5"),
        (r"\boxed\pi", r"\pi"),
        (r"$\fbox 3$", "3"),
    ]
    wrong = {text: found for text, answer in cases if (found := named(extract, text)) != (answer, Extraction.OK)}
    assert wrong == {}


def test_a_text_without_a_box_has_no_answer() -> None:
    texts = ["", "The answer is 5.", "boxed{5}", r"\boxedanswer{5}", r"\\boxed{5}", r"\boxed", r"\boxed $"]
    assert {text: found for text in texts if (found := named(extract, text)) != (None, Extraction.MISSING)} == {}


def test_an_empty_box_counts_as_missing() -> None:
    texts = [r"\boxed{}", r"\boxed{  }", "\\fbox{\n}"]
    assert {text: found for text in texts if (found := named(extract, text)) != (None, Extraction.MISSING)} == {}


def test_an_empty_box_does_not_hide_an_earlier_answer() -> None:
    assert extract(r"\boxed{5}, so fill in \boxed{}") == ("5", Extraction.OK)


def test_a_box_that_never_closes_is_unbalanced() -> None:
    texts = [r"\boxed{5", r"\boxed{\frac{1}{2}", r"\boxed{\text{a}", r"\boxed{5\}", r"\boxed{", r"\boxed{1 \boxed{2"]
    assert {text: found for text in texts if (found := named(extract, text)) != (None, Extraction.UNBALANCED)} == {}


def test_an_unclosed_last_box_gives_way_to_an_earlier_closed_one() -> None:
    assert extract(r"So \boxed{5}. To check, \boxed{5") == ("5", Extraction.OK)
    assert extract(r"\boxed{1 + \boxed{5}") == ("5", Extraction.OK)


def test_an_empty_box_after_an_unclosed_one_is_unbalanced() -> None:
    assert extract(r"\boxed{5 and \boxed{}") == (None, Extraction.UNBALANCED)


@given(NO_BOX, CONTENT, NO_BOX)
def test_a_balanced_box_is_found_in_any_surroundings(before: str, content: str, after: str) -> None:
    assert extract(f"{before}\\boxed{{{content}}}{after}") == (content.strip(), Extraction.OK)


@given(st.lists(st.sampled_from([r"\boxed", r"\fbox{", "{", "}", "\\", "a", " ", "$"]), max_size=30).map("".join))
def test_any_text_has_one_of_three_ends(text: str) -> None:
    answer, extraction = extract(text)
    assert (answer is not None) == (extraction is Extraction.OK)
    assert answer is None or answer == answer.strip() != ""


def test_a_thousand_open_boxes_do_not_take_forever() -> None:
    assert extract(r"\boxed{" * 100_000) == (None, Extraction.UNBALANCED)
    assert extract(r"\boxed{" * 50_000 + "5" + "}" * 50_000) == ("5", Extraction.OK)
