"""What the runtime adds to every pipeline's searches, so that they leave out what would give the answer away."""

from typing import Any

import pytest

from shared import canonical
from shared.calls import Duplicates, Estimate, Retrieve
from shared.params import Params, decode_params
from shared.replies import Retrieved
from shared.runtime.advance import Replay, exclude_duplicates
from shared.samples import Item

ITEM = Item(ordinal=0, question="What is 2+3?", gold="5")
OTHER = Item(ordinal=1, question="What is 3+4?", gold="7")
ANSWER = Retrieved(hits=())
SEARCH = Retrieve(question=ITEM.question, index="dense", k=3)


def asked(rule: Duplicates, items: list[Item], *yielded: Any) -> list[Any]:
    def steps() -> Any:
        replies = []
        for each in yielded:
            reply = yield each
            replies.append(reply)
        return replies

    replay, found = Replay(exclude_duplicates(steps(), rule, items)), []
    while replay.calls:
        found.append(replay.calls)
        replay.answer([ANSWER] * len(replay.calls))
    assert replay.result == [[ANSWER] * len(each) if isinstance(each, list) else ANSWER for each in yielded]
    return found


def test_a_search_says_the_rule_and_the_gold_answer() -> None:
    other = Estimate(question="?")
    single, several, last = asked("same-answer", [ITEM], SEARCH, [SEARCH, other], other)
    expected = Retrieve(question=ITEM.question, index="dense", k=3, duplicates="same-answer", gold="5")
    assert (single, several, last) == ((expected,), (expected, other), (other,))


def test_a_search_in_other_words_names_the_items_question() -> None:
    [(found,)] = asked("same-answer", [ITEM], Retrieve(question="sum of 2 and 3", index="dense", k=3))
    assert (found.question, found.item, found.gold) == ("sum of 2 and 3", ITEM.question, "5")


def test_each_question_of_a_calibration_has_its_own_gold_answer() -> None:
    other = Retrieve(question=OTHER.question, index="dense", k=3)
    [(first, second)] = asked("same-answer", [ITEM, OTHER], [SEARCH, other])
    assert (first.gold, second.gold) == ("5", "7")
    assert [(first,)] == asked("same-answer", [ITEM], SEARCH)


@pytest.mark.parametrize("rule", ["off", "same-text"])
def test_gold_answers_are_left_out_where_nothing_is_compared_with_them(rule: Duplicates) -> None:
    [(found,)] = asked(rule, [ITEM], SEARCH)
    assert (found.duplicates, found.gold) == (rule, "")


def test_a_job_of_release_0_1_asks_as_it_always_did() -> None:
    old = canonical.encode(Params()).replace(b'"duplicates":"same-answer",', b"")
    params = decode_params(old)
    assert params.duplicates == "same-words"
    assert asked(params.duplicates, [ITEM], SEARCH) == [(SEARCH,)]
    assert decode_params(canonical.encode(Params())) == Params()
