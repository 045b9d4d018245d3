"""Graders beyond mathematics: how an answer is found in a reply, and when it is right."""

import pytest

from shared.calls import MATHEMATICAL, Rules
from shared.params import GradingParams, Params
from shared.rag import grading
from shared.rag.grading import InvalidGold, choose_marking_grader, get_grader, mark
from shared.rag.text import normalise_words
from shared.replies import Marked
from shared.samples import Extraction, Outcome
from shared.storage.provenance import find_answering_text, find_extractor
from tests.unit.cases import named

CITIES = ("Bern", "Paris", "Rome")


def test_each_grader_finds_the_answer_in_a_reply() -> None:
    cases = [
        ("math", r"The capital is \boxed{5}", "5"),
        ("math", "The answer is 5.", "5"),
        ("math-dataset", "The answer is 5.", "5"),
        ("last-number", "There are 3 and 5.", "5"),
        ("text", r"So it is \boxed{\text{New York}}.", "New York"),
        ("text", "It has the tower.\nAnswer: Paris, France\n", "Paris, France"),
        ("text", "The final answer is **Paris**.", "Paris"),
        ("text", "答案是：北京", "北京"),
        ("text", 'The answer is "no"\nOn reflection, the answer is "yes"', "yes"),
        ("exact", " The capital is Paris\n", "The capital is Paris"),
        ("choice", "Bern is no candidate, so the answer is (B).", "B"),
        ("choice", r"\boxed{\text{B}}", "B"),
        ("choice", "Paris", "Paris"),
        ("rubric", r"First this, then \boxed{that}. ", r"First this, then \boxed{that}."),
    ]
    wrong = {
        (name, reply): found
        for name, reply, answer in cases
        if (found := named(get_grader(name).extract, reply)[:2]) != (answer, Extraction.OK)
    }
    assert wrong == {}


def test_mathematics_takes_no_number_that_is_not_given_as_the_answer() -> None:
    assert get_grader("math").extract("There are 3 and 5.") == (None, Extraction.MISSING, None)


@pytest.mark.parametrize(
    ("answer", "gold", "by_math", "by_dataset"),
    [
        (r"5\%", "5", False, True),
        ("50", r"50\%", False, True),
        ("y=5", "x=5", False, True),
        ("2/4", r"\frac12", True, True),
        (r"0.05", r"5\%", True, True),
        ("6", "5", False, False),
        ("6%", "5", False, False),
    ],
)
def test_the_conventions_of_math_are_a_grader_of_their_own(
    answer: str, gold: str, *, by_math: bool, by_dataset: bool
) -> None:
    assert mark(answer, gold, Rules(grader="math")).correct is by_math
    assert mark(answer, gold, Rules(grader="math-dataset")).correct is by_dataset


def test_sampled_answers_are_compared_by_their_values_alone() -> None:
    assert [choose_marking_grader(name, peers=True) for name in MATHEMATICAL] == ["math"] * 3
    assert [choose_marking_grader(name) for name in MATHEMATICAL] == ["math", "math-dataset", "math"]


def test_a_reply_with_nothing_in_it_has_no_answer() -> None:
    assert get_grader("text").extract('""') == (None, Extraction.MISSING, None)


def test_an_answer_is_right_by_the_grader_that_was_chosen() -> None:
    cases = [
        ("exact", "Paris", "Paris", True),
        ("exact", "paris", "Paris", False),
        ("text", "  The  PARIS! ", "Paris", True),
        ("text", "Ｐａｒｉｓ", "Paris", True),
        ("text", "The capital is Paris", "Paris", False),
        ("text", "-5", "5", False),
        ("text", "\u22125", "-5", True),
        ("text", "3.5", "35", False),
        ("text", ".5", "5", False),
        ("text", "12:30", "1230", False),
        ("text", "1,000", "1000", True),
        ("text", "50 %", "50%", True),
        ("text", "50", "50%", False),
        ("text", "x > 0", "x < 0", False),
        ("text", "The", "A", False),
        ("text", "?", "!", False),
        ("text", "北京。", "北京", True),
        ("contains", "The capital is Paris.", "Paris", True),
        ("contains", "The capital is Paris.", "Par", False),
        ("contains", "首都是北京", "北京", True),
        ("regex", "The colour is red", r"colou?r is (red|blue)", True),
        ("regex", "Colour", r"^colour$", False),
        ("set", r"\{b, a\}", "a, b", True),
        ("set", "red, green and blue", "blue\nred\ngreen", True),
        ("set", "a, a, b", "b; a", True),
        ("set", "a", "a, b", False),
        ("set", "a, b, c", "a, b", False),
    ]
    wrong = {
        (name, answer, gold): found
        for name, answer, gold, correct in cases
        if (found := named(mark, answer, gold, Rules(grader=name))).correct is not correct
    }
    assert wrong == {}


def test_token_f1_is_squads() -> None:
    cases = [
        ("the capital is Paris", "Paris", 0.5),
        ("Paris", "the city of Paris", 0.5),
        ("首都是北京", "北京", 4 / 7),
        ("Lyon", "Paris", 0.0),
        ("Paris, Paris", "Paris", 2 / 3),
    ]
    wrong = {}
    for answer, gold, score in cases:
        found = named(mark, answer, gold, Rules(grader="f1", threshold=0.5))
        if found != Marked(correct=score >= 0.5, strict=False, score=pytest.approx(score)):
            wrong[answer, gold] = found
    assert wrong == {}


def test_a_choice_is_stated_by_its_letter_or_its_text() -> None:
    cases = [
        ("(B)", True), ("B.", True), ("b", True), ("**B**", True), ("B) Paris", True), ("The answer is B", True),
        ("Option B", True), ("Paris", True), ("It is the city of Paris", True), ("I choose (B), of course", True),
        ("A", False), ("(A) or (B)", False), ("A dog", False), ("Paris or Rome", False), ("Z", False), ("", False),
    ]  # fmt: skip
    cases += [
        (r"\text{B}", True), (r"\textbf{(B)}", True), ("B because of the tower", True), ("Option B, since it is", True),
        ("B is correct", True), ("选B", True), ("B is not correct", False), ("1 Paris", False), ("B/C", False),
        ("<think>A</think>B", True),
    ]  # fmt: skip
    rules = Rules(grader="choice", choices=CITIES)
    wrong = {
        answer: found for answer, right in cases if (found := named(mark, answer, "B", rules)).correct is not right
    }
    assert wrong == {}


def test_the_best_of_several_gold_answers_counts() -> None:
    rules = Rules(grader="f1", golds=("city of light", "Paris"), threshold=0.6)
    assert mark("Paris", "capital of France", rules) == Marked(correct=True, strict=True, score=1.0)


def test_no_answer_is_a_wrong_answer() -> None:
    assert mark(None, "Paris", Rules(grader="f1")).correct is False


def test_a_set_has_the_separators_that_it_is_given() -> None:
    assert mark("Rome|Paris, Texas", "Paris, Texas|Rome", Rules(grader="set", separators="|")).correct
    assert not mark("Texas|Paris|Rome", "Paris, Texas|Rome", Rules(grader="set", separators="|")).correct


@pytest.mark.parametrize("gold", ["(", "(?P<n>", "a" * 1001, "(" * 900])
def test_what_is_no_regular_expression_is_refused_in_words(gold: str) -> None:
    with pytest.raises(InvalidGold, match="regular expression"):
        grading.check_gold("regex", gold)


def test_an_unknown_grader_is_refused_with_those_that_exist() -> None:
    with pytest.raises(LookupError, match="there is no grader 'fuzzy'; there are: math, math-dataset, last-number"):
        get_grader("fuzzy")


def test_words_are_never_nothing() -> None:
    assert (normalise_words("The"), normalise_words("?!"), normalise_words("")) == (["the"], ["?!"], [])


@pytest.mark.parametrize(("name", "text"), [("text", "Answer: Paris"), ("rubric", "Answer: Rome")])
def test_of_several_texts_the_one_with_the_answer_is_shown_as_the_jobs_grader_reads_it(name: str, text: str) -> None:
    outcome = Outcome(answer="Paris", extraction=Extraction.OK)
    extract = find_extractor(Params(grading=GradingParams(grader=name)))
    assert find_answering_text(["Answer: Paris", "Answer: Rome"], outcome, extract) == text
