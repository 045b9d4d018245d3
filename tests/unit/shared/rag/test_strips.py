"""Knowledge strips: three ways to cut a passage, and which of the pieces stay."""

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.rag.crag import WORST, Strip, choose_strips, cut_strips, score_strips, split_words

LENGTHS = (0, 1, 9, 10, 49, 50, 51, 59, 60)
WINDOWS = ([], [1], [9], [10], [49], [50], [51], [59], [50, 10])
PASSAGES = st.lists(st.sampled_from(["a", "bb", "$x + y$", "c.", "d?", "好", "吗？", "e. f", "\n"]), max_size=130).map(
    " ".join
)


def passage(count: int) -> str:
    return " ".join(f"w{at}" for at in range(count))


def authors_code(psg: str, mode: Literal["fixed", "excerption"]) -> list[str]:
    """The rules of the authors' code, written once more; blanks around sentences are left out, as we do.

    A passage of fewer than 10 words is an error in it.
    """
    if mode == "fixed":
        found = psg.split(" ")
        cut = [" ".join(found[at : at + 50]) for at in range(0, len(found), 50)]
        if len(cut[-1].split(" ")) < 10:
            cut[-2:] = [f"{cut[-2]} {cut[-1]}"]
        return cut
    joined: list[str] = []
    for sentence in (each.strip() for part in psg.split("?") for each in part.split(". ")):
        if sentence in joined:
            continue
        if joined and len(sentence.split()) <= 5:
            joined[-1] += sentence
        else:
            joined.append(sentence)
    return [" ".join(joined[at : at + 3]) for at in range(0, len(joined), 3)]


@pytest.mark.parametrize(("count", "expected"), list(zip(LENGTHS, WINDOWS, strict=True)))
def test_windows_have_fifty_words_and_a_short_tail_belongs_to_the_last(count: int, expected: list[int]) -> None:
    found = cut_strips(passage(count), "fixed")
    assert [len(window.split()) for window in found] == expected
    assert " ".join(found) == passage(count)


@pytest.mark.parametrize("count", LENGTHS)
def test_a_selection_is_the_whole_passage(count: int) -> None:
    assert cut_strips(passage(count), "selection") == ([passage(count)] if count else [])


@pytest.mark.parametrize("count", LENGTHS)
def test_an_excerpt_of_one_sentence_is_the_passage(count: int) -> None:
    assert cut_strips(passage(count), "excerption") == ([passage(count)] if count else [])


S = [f"sentence number {name} has seven words here" for name in ("one", "two", "three", "four", "five")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (". ".join(S[:3]), [" ".join(S[:3])]),
        (". ".join(S[:4]), [" ".join(S[:3]), S[3]]),
        (". ".join([*S, S[0]]), [" ".join(S[:3]), " ".join(S[3:])]),
        ("? ".join(S[:2]), [" ".join(S[:2])]),
        (f"{S[0]}?", [S[0]]),
        (f"{S[0]}. only five words are here. {S[1]}", [f"{S[0]} only five words are here {S[1]}"]),
        (f"Why. {S[0]}", [f"Why {S[0]}"]),
        ("Why? So?", ["Why So"]),
        (f"{S[0]}. {S[0]}. {S[0]}", [S[0]]),
        ("?", []),
    ],
)  # fmt: skip
def test_excerpts_are_groups_of_three_sentences(text: str, expected: list[str]) -> None:
    assert cut_strips(text, "excerption") == expected


def test_nothing_is_cut_inside_a_formula() -> None:
    formula = "$a + b. c? d$"
    assert split_words(f"so {formula} holds") == ["so", formula, "holds"]
    assert cut_strips(f"it is {formula} that makes it all true. So.", "excerption") == [
        f"it is {formula} that makes it all true So."
    ]
    windows = cut_strips(f"{passage(49)} {formula} {passage(20)}", "fixed")
    assert [formula in window for window in windows] == [True, False]


def test_chinese_characters_are_words() -> None:
    assert split_words("鸭子 16 颗蛋") == ["鸭", "子", "16", "颗", "蛋"]
    assert [len(window) for window in cut_strips("好" * 60, "fixed")] == [50, 10]
    assert [len(window) for window in cut_strips("好" * 59, "fixed")] == [59]
    assert cut_strips("鸭子每天下十六颗蛋。她每天早上要吃三颗。为什么？", "excerption") == [
        "鸭子每天下十六颗蛋 她每天早上要吃三颗 为什么"
    ]


@given(st.lists(st.sampled_from(["a", "bb", "c.", "d?", "e"]), min_size=10, max_size=130).map(" ".join))
def test_without_formulas_the_strips_are_those_of_the_authors_code(text: str) -> None:
    for mode in ("fixed", "excerption"):
        theirs = ["".join(strip.split()) for strip in authors_code(text, mode)]
        assert ["".join(strip.split()) for strip in cut_strips(text, mode)] == [strip for strip in theirs if strip]


@given(PASSAGES)
def test_windows_lose_nothing(text: str) -> None:
    found = cut_strips(text, "fixed")
    assert [word for window in found for word in split_words(window)] == split_words(text)
    sizes = [len(split_words(window)) for window in found]
    assert set(sizes[:-1]) <= {50}
    assert all(10 <= size < 60 for size in sizes[-1:]) or len(sizes) == 1


@given(PASSAGES)
def test_no_strip_is_empty(text: str) -> None:
    assert all(strip.strip() for mode in ("selection", "fixed", "excerption") for strip in cut_strips(text, mode))  # type: ignore[arg-type]


def test_strips_are_scored_by_their_likeness_to_the_question() -> None:
    found = score_strips(
        "area of a triangle",
        [
            ("d", "the area of this triangle"),
            ("d", "music is a fine thing"),
            ("e", "music for all of"),
            ("e", "triangle"),
        ],
    )
    assert [strip.document for strip in found] == ["d", "d", "e", "e"]
    assert found[0].score > found[1].score > 0
    assert found[3].score == WORST < found[2].score


def test_the_best_strips_stay_in_their_order_or_by_score() -> None:
    pieces = [Strip("d", text, score) for text, score in (("a", 0.1), ("b", 0.9), ("c", 0.5), ("e", 0.9))]
    assert [strip.text for strip in choose_strips(pieces, 3, "original")] == ["b", "c", "e"]
    assert [strip.text for strip in choose_strips(pieces, 3, "score")] == ["b", "e", "c"]
    assert choose_strips(pieces, 9, "original") == pieces
    assert choose_strips([], 3, "score") == []
