"""Facts in words."""

import pytest

from shared.rules.graph import inverse_phrase, phrase, sentence
from shared.samples import Phrase


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
