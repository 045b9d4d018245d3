import hashlib
from typing import Any

import pytest

from shared import canonical
from shared.calls import Duplicates, Estimate, Generate, Judge, Retrieve
from shared.params import Params, decode_params
from shared.pipelines.binding import Binding, Pin
from shared.replies import Generated, Retrieved
from shared.runtime.advance import JobSpec, Replay, SampleProgress, StoredAnswer, decode_answer, exclude_duplicates
from shared.samples import Item

# What the runtime adds to every pipeline's searches, so that they leave out what would give the answer away.


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


# Progress: one sample's replay, what is to be recorded of it, and what it was made from.

JOB = JobSpec(
    id=1,
    pipeline="closed-book",
    dataset_id=1,
    params=Params(),
    prepared=None,
    binding=Binding(pins={"generate": Pin(model_id=1, hash="aa")}, params=Params()),
)
A, B, C = (Generate(template="cot", question=question) for question in "abc")


def progress(*yields: Any, recorded: int = 0) -> SampleProgress:
    def steps() -> Any:
        replies = []
        for each in yields:
            replies.append((yield each))  # noqa: PERF401 - a comprehension cannot yield
        return replies

    return SampleProgress(7, JOB, 0, recorded, Replay(steps()))


def stored(text: str, call_id: int = 1) -> StoredAnswer:
    return decode_answer(call_id, canonical.encode(Generated(text=text)))


def test_what_a_fresh_sample_asks_is_to_be_recorded() -> None:
    fresh = progress([A, B])
    assert fresh.waits
    assert [(step.position, step.slot) for step in fresh.steps] == [(0, 0), (0, 1)]
    assert [step.bound.key for step in fresh.steps] == [bound.key for bound in fresh.bound]


def test_what_is_recorded_already_is_not_recorded_again() -> None:
    known = progress(A, B, C, recorded=2)
    assert known.steps == []
    known.consume([stored("one")])
    assert known.steps == []
    known.consume([stored("two")])
    assert [(step.position, step.slot) for step in known.steps] == [(2, 0)]


def test_steps_gather_while_replies_are_there() -> None:
    running = progress(A, [B, C])
    running.consume([stored("one")])
    running.consume([stored("two"), stored("three")])
    assert [(step.position, step.slot) for step in running.steps] == [(0, 0), (1, 0), (1, 1)]
    assert not running.waits
    assert running.bound == ()
    assert running.replay.result == [Generated(text="one"), [Generated(text="two"), Generated(text="three")]]


def test_the_recorded_keys_are_expected_in_order() -> None:
    keys = [bound.key for bound in progress([A, B]).bound]
    assert progress([A, B]).expects(keys)
    for other in (keys[::-1], keys[:1], [*keys, b"x" * 32], []):
        diverged = progress([A, B])
        assert not diverged.expects(other)
        assert not diverged.waits
        assert diverged.replay.failure is not None
        assert diverged.replay.failure[0] == "replay_diverged"


def test_a_divergence_names_position_and_keys() -> None:
    diverged = progress(A, B)
    diverged.consume([stored("one")])
    yielded = diverged.bound[0].key.hex()[:12]
    diverged.expects([b"\xab" * 32])
    assert diverged.replay.failure == (
        "replay_diverged",
        f"position 1: recorded {'ab' * 6}, yielded {yielded}",
    )
    ended = progress()
    ended.expects([b"\xab" * 32])
    assert ended.replay.failure is not None
    assert ended.replay.failure[1].endswith("yielded nothing")


def test_the_record_is_the_hash_of_every_key_and_reply_in_order() -> None:
    made = progress(A, [B, C])
    keys = [bound.key for bound in made.bound]
    made.consume([stored("one")])
    keys += [bound.key for bound in made.bound]
    made.consume([stored("two"), stored("three")])
    replies = [canonical.encode(Generated(text=text)) for text in ("one", "two", "three")]
    expected = hashlib.sha256(b"".join(key + reply for key, reply in zip(keys, replies, strict=True))).digest()
    assert made.record == expected


def test_other_replies_make_another_record() -> None:
    records = set()
    for texts in (("one", "two"), ("two", "one"), ("one", "one")):
        made = progress([A, B])
        made.consume([stored(text) for text in texts])
        records.add(made.record)
    assert len(records) == 3


def test_as_many_replies_as_calls() -> None:
    with pytest.raises(ValueError, match="zip"):
        progress([A, B]).consume([stored("one")])


def test_a_call_that_cannot_be_bound_fails_the_sample() -> None:
    failed = progress(A, Judge(rubric="reasoning-quality", document="aa"))
    failed.consume([stored("one")])
    assert not failed.waits
    assert failed.replay.failure == ("pipeline_error", "cannot bind a call: KeyError('judge')")
    assert [(step.position, step.slot) for step in failed.steps] == [(0, 0)]


def test_an_answer_without_a_reply_is_a_call_that_is_still_open() -> None:
    assert decode_answer(3, None) == StoredAnswer(3, None, None)
    assert decode_answer(3, b'{"type":"generated","text":"x"}').reply == Generated(text="x")
