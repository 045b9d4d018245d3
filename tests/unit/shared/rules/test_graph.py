import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.rules import graph
from shared.rules.graph import inverse_phrase, phrase, sentence
from shared.samples import Phrase

# Facts in words.


@pytest.mark.parametrize(
    ("relation", "said"),
    [
        ("Make_statement", "make statement"),
        ("/people/person/nationality", "people person nationality"),
        ("/film/film/release_date_s./film/film_regional/film_release_region",
         "film film release date s film film regional film release region"),
        ("isMarriedTo", "is married to"),
        ("Abduct,_hijack,_or_take_hostage", "abduct, hijack, or take hostage"),
        ("位于", "位于"),
        ("/", "/"),
    ],
)  # fmt: skip
def test_a_relation_without_a_phrase_is_called_by_its_name(relation: str, said: str) -> None:
    assert phrase(relation) == said


def test_declared_phrases_stand_as_they_are() -> None:
    both = Phrase(relation="r", phrase="is a Parent of", inverse="is a Child of")
    assert (phrase("r", both), inverse_phrase("r", both)) == ("is a Parent of", "is a Child of")
    assert inverse_phrase("r", Phrase(relation="r", phrase="is a Parent of")) == "inverse of is a Parent of"
    assert inverse_phrase("Make_statement") == "inverse of make statement"


def test_a_sentence_shows_names_with_blanks_and_its_time_first() -> None:
    assert sentence("Abdullah_Abdullah", "consult", "Ashraf_Ghani") == "Abdullah Abdullah consult Ashraf Ghani."
    assert sentence("A", "met", "B", "2014-09-20") == "Time 2014-09-20 A met B."


# Times of facts: dates and steps, and nothing else.


@given(st.dates())
def test_a_date_is_its_day_and_comes_back(date: object) -> None:
    unit, number = graph.parse(str(date))
    assert (unit, graph.written(number, unit)) == ("day", str(date))


@given(st.integers(-(10**18) + 1, 10**18 - 1))
def test_a_whole_number_is_its_own_step(step: int) -> None:
    assert graph.parse(str(step)) == ("step", step)
    assert graph.written(step, "step") == str(step)


def test_days_after_one_another_are_steps_after_one_another() -> None:
    numbers = [graph.parse(day)[1] for day in ("2016-02-28", "2016-02-29", "2016-03-01")]
    assert [number - numbers[0] for number in numbers] == [0, 1, 2]


@pytest.mark.parametrize(
    "text", ["", "2014-02-30", "2014-1-1", "20.09.2014", "2014-09-20T00:00:00", "1.5", "1e3", "9" * 19, "٣", "now"]
)
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        graph.parse(text)
