"""Questions in words: the graph's phrases, a relation's own templates, and what a template may hold."""

import pytest

from shared.questions.items import QuestionTemplates, Side, Wording, check
from shared.samples import Phrase

PHRASES = {"met": Phrase(relation="met", phrase="has met")}


@pytest.mark.parametrize(
    ("wording", "side", "time", "expected"),
    [
        (Wording({}, {}, None), "object", None, "New York lies near whom or what?"),
        (Wording({}, {}, None), "subject", None, "Who or what lies near New York?"),
        (Wording({}, {}, "day"), "subject", "2014-11-11", "On 2014-11-11, Who or what lies near New York?"),
        (Wording({}, {}, "step"), "object", "7", "At 7, New York lies near whom or what?"),
    ],
)
def test_a_relation_is_called_by_its_name(wording: Wording, side: Side, time: str | None, expected: str) -> None:
    assert wording.question("Lies_near", side, "New_York", time) == expected


def test_the_graphs_phrase_comes_first() -> None:
    assert Wording(PHRASES, {}, None).question("met", "object", "a", None) == "a has met whom or what?"


def test_a_template_replaces_both_questions_of_its_relation() -> None:
    templates = {"met": QuestionTemplates("Whom did {subject} meet on {time}?", "Who met {object}?")}
    wording = Wording(PHRASES, templates, "day")
    assert wording.question("met", "object", "{time}", "2014-11-11") == "Whom did {time} meet on 2014-11-11?"
    assert wording.question("met", "subject", "b", "2014-11-11") == "On 2014-11-11, Who met b?"
    assert wording.question("saw", "object", "a", "2014-11-11") == "On 2014-11-11, a saw whom or what?"


@pytest.mark.parametrize(
    ("template", "timed", "said"),
    [
        ("Whom?", True, "lacks the slot {subject}"),
        ("Whom did {subject} {verb}?", True, r"has the slot {verb}; it may have {subject} and {time}"),
        ("Did {subject} meet {object}?", True, "has the slot {object}"),
        ("Whom did {subject} meet on {time}?", False, r"has the slot {time}; it may have {subject}$"),
    ],
)
def test_a_template_that_cannot_be_filled_is_refused(template: str, *, timed: bool, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check(template, "subject", timed=timed)
