"""Reading the judge's reply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.rag.prompts import Critique, parse_critique, parse_rating
from shared.replies import Failure, FailureKind, Rated


@pytest.mark.parametrize("rating", range(1, 6))
def test_a_rating_from_1_to_5_is_read(rating: int) -> None:
    rated = parse_rating(f" [[{rating}]]\n", truncated=False)
    assert rated == Rated(rating=rating, text=f" [[{rating}]]\n")
    assert rated.quality == (rating - 1) / 4


def test_a_rating_is_found_inside_other_text() -> None:
    rated = parse_rating("Sure! The rating is [[4]], because", truncated=True)
    assert isinstance(rated, Rated)
    assert rated.rating == 4


def test_the_same_rating_several_times_is_one_rating() -> None:
    rated = parse_rating("[[3]] [[3]] [[3]]", truncated=False)
    assert isinstance(rated, Rated)
    assert rated.rating == 3


@pytest.mark.parametrize(
    "text",
    ["[[0]]", "[[6]]", "[[9]]", "[[12]]", "[[05]]", "[[1]] [[2]]", "[[4]] or [[6]]", "[[4]] [[12]]", "[[٣]]", "[[-1]]"],
)
def test_anything_but_one_number_from_1_to_5_is_unparsed(text: str) -> None:
    reply = parse_rating(text, truncated=False)
    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.UNPARSED
    assert repr(text)[1:-1] in reply.detail


@pytest.mark.parametrize("text", ["", "5", "[5]", "[[five]]", "[[1, 2]]", "[[4", "4]]", "Rating: 4/5", "[[]]"])
def test_a_reply_without_a_rating_says_whether_it_was_cut_off(text: str) -> None:
    cut, whole = parse_rating(text, truncated=True), parse_rating(text, truncated=False)
    assert isinstance(cut, Failure)
    assert isinstance(whole, Failure)
    assert (cut.kind, whole.kind) == (FailureKind.TRUNCATED, FailureKind.UNPARSED)


@pytest.mark.parametrize(
    "text",
    [
        "[[ 4 ]]", "[[４]]", "[[4.0]]", "［［４］］", "[[\n4\n]]", "**[[4]]**", "[[4]]/5", "[[4]] out of 5", "[[4/5]]",
        "[[4 out of 5]]", "[[4分]]", "[[4]] [[4.0]]", "<think>[[2]] or [[3]]?</think>[[4]]",
        "<think>At first [[1]].\n</think>\n\nRating: [[4]]", "Perhaps [[2]].</think>[[4]]",
    ],
)  # fmt: skip
def test_brackets_hold_a_rating_in_whatever_characters_and_spacing(text: str) -> None:
    assert parse_rating(text, truncated=False) == Rated(rating=4, text=text)


@pytest.mark.parametrize(
    "text",
    [
        "[[4/10]]", "[[4]]/10", "[[4]] out of 10", "[[8 out of 10]]", "[[4%]]", "[[80%]]", "[[4]] %", "[[3-4]]",
        "[[3]]-[[4]]", "[[3]] to [[4]]", "[[3 to 4]]", "[[3–4]]", "[[4.5]]", "[[4,5]]", "[[4.5]] [[4]]", "[[＋6]]",
        "[[3]]～4", "[[4]] on a scale of 1 to 10", "[[4½]]",
    ],
)  # fmt: skip
def test_another_scale_a_range_and_a_fraction_are_no_rating(text: str) -> None:
    reply = parse_rating(text, truncated=False)
    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.UNPARSED


def test_a_thought_that_never_ended_holds_no_rating() -> None:
    for truncated, kind in ((True, FailureKind.TRUNCATED), (False, FailureKind.UNPARSED)):
        reply = parse_rating("<think>Perhaps [[4]], as the steps", truncated=truncated)
        assert isinstance(reply, Failure)
        assert reply.kind is kind


@pytest.mark.parametrize("text", ["[[6]] and then", "[[1]] [[2]] and"])
def test_truncation_does_not_excuse_a_bad_rating(text: str) -> None:
    reply = parse_rating(text, truncated=True)
    assert isinstance(reply, Failure)
    assert reply.kind is FailureKind.UNPARSED


def test_the_detail_is_shortened() -> None:
    reply = parse_rating("blah " * 1000, truncated=False)
    assert isinstance(reply, Failure)
    assert len(reply.detail) < 200
    assert "blah" in reply.detail
    assert "…" in reply.detail


@given(
    st.lists(st.sampled_from(["[[1]]", "[[5]]", "[[0]]", "[[7]]", "[[", "]]", "3", " ", "x"]), max_size=8),
    st.booleans(),
)
def test_a_rating_is_always_in_range_or_a_failure(parts: list[str], truncated: bool) -> None:
    text = "".join(parts)
    reply = parse_rating(text, truncated=truncated)
    if isinstance(reply, Rated):
        assert f"[[{reply.rating}]]" in text
        assert reply.rating in {1, 5, 3}
    else:
        assert reply.kind in {FailureKind.UNPARSED, FailureKind.TRUNCATED}


@pytest.mark.parametrize(
    ("text", "score", "reason"),
    [
        ('{"relevance_score": 0.85, "reasoning": "It explains the idea."}', 0.85, "It explains the idea."),
        ('```json\n{\n  "relevance_score": 1,\n  "reasoning": "Yes"\n}\n```', 1.0, "Yes"),
        ('Sure! {"reasoning": "No use", "relevance_score": 0} Anything else?', 0.0, "No use"),
        ('{"relevance_score": "0.5", "reasoning": ""}', 0.5, ""),
        ("{'relevance_score': .25}", 0.25, ""),
        ('{"relevance_score": 0.7, "reasoning": "by \\frac{1}{2} \\sqrt{2}"}', 0.7, "by \\frac{1}{2} \\sqrt{2}"),
        ('{"relevance_score": 0.7, "reasoning": "says \\"relevance_score\\": 0.1, too"}', 0.7,
         'says "relevance_score": 0.1, too'),
        ('{"relevance_score": 0.7, "reasoning": "it was cut', 0.7, "it was cut"),
        ('{"relevance_score": 0.7}\n{"relevance_score": 0.70}', 0.7, ""),
        ('{"relevance_score": 8e-1, "reasoning": "\\u76f8\\u5173"}', 0.8, "相关"),
        ('｛"relevance_score"：０．８｝', 0.8, ""),
        ('{"relevance_score"：0.8, "reasoning"："x² 相关"}', 0.8, "x² 相关"),
        ('<think>"relevance_score": 0.1, too low</think>{"relevance_score": 0.8, "reasoning": "a"}', 0.8, "a"),
    ],
)  # fmt: skip
def test_a_score_and_its_reason_are_read_from_json(text: str, score: float, reason: str) -> None:
    assert parse_critique(text, truncated=False) == Critique(score, reason)


@pytest.mark.parametrize(
    "text",
    [
        "", "It is relevant.", "[[4]]", "0.8", '{"score": 0.8}', '{"relevance_score": 85}', '{"relevance_score": -0.1}',
        '{"relevance_score": "high"}', '{"relevance_score": null}', '{"relevance_score": NaN}',
        '{"relevance_score": 8/10}', '{"relevance_score": "0.8/1"}', '{"relevance_score": 0.6-0.8}',
        '{"relevance_score": 0.1}{"relevance_score": 0.9}', '<think>{"relevance_score": 0.8}',
        '{"relevance_score": true}', '{"relevance_score": 85%}',
    ],
)  # fmt: skip
def test_a_reply_without_one_score_is_no_score(text: str) -> None:
    found = parse_critique(text, truncated=False)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.UNPARSED


@pytest.mark.parametrize("text", ['{"relevance_score": 0.', '{"relevance_score": 0', '{"reasoning": "a long'])
def test_a_score_that_the_token_limit_cut_is_none(text: str) -> None:
    found = parse_critique(text, truncated=True)
    assert isinstance(found, Failure)
    assert found.kind is FailureKind.TRUNCATED


@given(st.text(), st.booleans())
def test_no_text_breaks_the_reader_of_critiques(text: str, truncated: bool) -> None:
    assert isinstance(parse_critique(text, truncated=truncated), Critique | Failure)
