"""Samples advance by replay: pure, never raising, and stored as far as they came."""

import contextlib
import hashlib
import re
import signal
from collections.abc import Callable, Generator
from typing import Any

import pytest

from shared import canonical
from shared.calls import Duplicates, Estimate, Generate, Grade, Judge, Retrieve
from shared.params import DenseParams, Params, decode_params
from shared.pipelines.binding import Binding, Pin
from shared.pipelines.grading import run_and_grade, with_verdict
from shared.replies import Failure, FailureKind, Generated, Graded, Retrieved, require
from shared.runtime import advance
from shared.runtime.advance import JobSpec, Replay, SampleProgress, StoredAnswer, complete_searches, decode_answer
from shared.samples import Extraction, Item, Outcome, Steps

# What the runtime adds to every pipeline's searches, so that they leave out what would give the answer away.


ITEM = Item(ordinal=0, question="What is 2+3?", gold="5")
OTHER = Item(ordinal=1, question="What is 3+4?", gold="7")
ANSWER = Retrieved(hits=())
SEARCH = Retrieve(question=ITEM.question, index="dense", k=3)


def asked(rule: Duplicates, items: list[Item], *yielded: Any, threshold: float | None = None) -> list[Any]:
    def steps() -> Any:
        replies = []
        for each in yielded:
            reply = yield each
            replies.append(reply)
        return replies

    params = Params(duplicates=rule, dense=DenseParams(threshold=threshold))
    replay, found = Replay(complete_searches(steps(), params, items)), []
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


@pytest.mark.parametrize("rule", ["off", "same-words"])
def test_every_search_by_vectors_has_the_threshold(rule: Duplicates) -> None:
    words = Retrieve(question=ITEM.question, index="sparse", k=3)
    [found] = asked(rule, [ITEM], [SEARCH, words], threshold=0.7)
    assert [each.threshold for each in found] == [0.7, None]


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


def test_an_earlier_job_of_rulerag_goes_on_to_search_by_rules_alone() -> None:
    old = canonical.encode(Params()).replace(b'"question":true,', b"")
    assert not decode_params(old).rulerag.question
    assert Params().rulerag.question


def test_an_earlier_job_of_crag_keeps_its_limit_of_relevance() -> None:
    old = canonical.encode(Params()).replace(b'"question":true,', b"")
    assert decode_params(old).crag.upper == 0.75
    assert decode_params(old.replace(b'"evaluator":"judge"', b'"evaluator":"similarity"')).crag.upper is None
    assert decode_params(canonical.encode(Params())).crag.upper is None


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
    assert diverged.replay.failure == ("replay_diverged", f"position 1: recorded {'ab' * 6}, yielded {yielded}")
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


# A replay is the pipeline run until it waits for a reply that is not there: pure, and never raising.

REPLY, OTHER_REPLY = Generated(text="one"), Generated(text="two")
OUTCOME = Outcome(answer="4", extraction=Extraction.OK)


def test_a_single_call_is_answered_with_its_reply() -> None:
    def steps() -> Generator[Any, Any, Any]:
        return (yield A)

    replay = Replay(steps())
    assert (replay.calls, replay.position) == ((A,), 0)
    replay.answer([REPLY])
    assert (replay.calls, replay.result, replay.failure, replay.position) == ((), REPLY, None, 1)


def test_a_list_of_calls_is_answered_with_a_list_in_order() -> None:
    def steps() -> Generator[Any, Any, Any]:
        return (yield [A, B])

    replay = Replay(steps())
    assert replay.calls == (A, B)
    replay.answer((REPLY, OTHER_REPLY))
    assert replay.result == [REPLY, OTHER_REPLY]


@pytest.mark.parametrize("sequence", [[A], (A,)])
def test_a_list_of_one_call_is_answered_with_a_list_of_one(sequence: Any) -> None:
    def steps() -> Generator[Any, Any, Any]:
        return (yield sequence)

    replay = Replay(steps())
    replay.answer([REPLY])
    assert replay.result == [REPLY]


def test_an_empty_list_waits_for_nothing() -> None:
    def steps() -> Generator[Any, Any, Any]:
        first = yield []
        second = yield A
        third = yield ()
        return first, second, third

    replay = Replay(steps())
    assert (replay.calls, replay.position) == ((A,), 0)
    replay.answer([REPLY])
    assert replay.result == ([], REPLY, [])
    assert replay.position == 1


def test_a_pipeline_that_asks_nothing_ends_at_once() -> None:
    def steps() -> Generator[Any, Any, Any]:
        return "done"
        yield

    replay = Replay(steps())
    assert (replay.calls, replay.result, replay.position) == ((), "done", 0)


def test_positions_count_the_answered_yields() -> None:
    def steps() -> Generator[Any, Any, None]:
        yield A
        yield [A, B]
        yield B

    replay = Replay(steps())
    for position, calls in enumerate([(A,), (A, B), (B,)]):
        assert (replay.position, replay.calls) == (position, calls)
        replay.answer([REPLY] * len(calls))
    assert (replay.position, replay.calls, replay.failure) == (3, (), None)


def test_a_required_failure_ends_the_replay_with_its_kind() -> None:
    def steps() -> Generator[Any, Any, Any]:
        return require((yield A))

    replay = Replay(steps())
    replay.answer([Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="2,000 tokens")])
    assert replay.failure == ("context_exceeded", "2,000 tokens")
    assert (replay.calls, replay.result) == ((), None)


def test_a_failure_that_is_not_required_is_a_reply() -> None:
    failure = Failure(kind=FailureKind.UNPARSED)

    def steps() -> Generator[Any, Any, Any]:
        return (yield A)

    replay = Replay(steps())
    replay.answer([failure])
    assert (replay.result, replay.failure) == (failure, None)


@pytest.mark.parametrize("after", [0, 1])
def test_any_other_exception_is_a_pipeline_error_with_its_traceback(after: int) -> None:
    def steps() -> Generator[Any, Any, None]:
        if after == 0:
            raise KeyError("first line")
        yield A
        raise KeyError("after a reply")

    replay = Replay(steps())
    if after:
        replay.answer([REPLY])
    assert replay.failure is not None
    kind, detail = replay.failure
    assert kind == "pipeline_error"
    assert "KeyError" in detail
    assert "test_advance.py" in detail
    assert replay.calls == ()


def test_a_failure_from_outside_ends_the_replay() -> None:
    def steps() -> Generator[Any, Any, None]:
        yield A

    replay = Replay(steps())
    replay.fail("replay_diverged", "position 0")
    assert (replay.calls, replay.failure) == ((), ("replay_diverged", "position 0"))


def pipeline() -> Steps:
    yield A
    return OUTCOME


def test_a_gold_answer_is_compared_with_the_outcomes() -> None:
    replay = Replay(run_and_grade(pipeline(), Item(ordinal=0, question="?", gold="4"), {}))
    replay.answer([REPLY])
    assert replay.calls == (Grade(answer="4", gold="4"),)
    verdict = Graded(math_verify=True, strict=False)
    replay.answer([verdict])
    assert replay.result is not None
    assert (replay.result.answer, replay.result.verdict) == ("4", verdict)


def test_without_a_gold_answer_nothing_is_graded() -> None:
    replay = Replay(run_and_grade(pipeline(), Item(ordinal=0, question="?"), {}))
    replay.answer([REPLY])
    assert replay.result == OUTCOME


def test_a_grader_that_failed_is_recorded_and_fails_no_sample() -> None:
    outcome = with_verdict(OUTCOME, Failure(kind=FailureKind.GRADER_TIMEOUT))
    assert (outcome.answer, outcome.verdict, outcome.grading_failure) == ("4", None, "grader_timeout")


def test_what_was_away_for_too_long_ends_the_sample_whatever_its_pipeline_would_do() -> None:
    def goes_on() -> Generator[Any, Any, str]:
        yield Grade(answer="1", gold="1")
        return "went on without"

    replay = Replay(goes_on())
    replay.answer([Failure(kind=FailureKind.UNAVAILABLE, detail="waited 3600 s")])
    assert (replay.result, replay.failure, replay.calls) == (None, ("unavailable", "waited 3600 s"), ())
    replay = Replay(goes_on())
    replay.answer([Failure(kind=FailureKind.BACKEND_ERROR)])
    assert replay.result == "went on without"


def _loop() -> None:
    while True:
        pass


def _loop_over_errors() -> None:
    while True:
        with contextlib.suppress(Exception):
            _loop()


def _match_slowly() -> None:
    re.match(r"(a+)+$", "a" * 64 + "b")


@pytest.mark.parametrize("endless", [_loop, _loop_over_errors, _match_slowly])
def test_a_step_that_does_not_end_fails_its_sample(
    endless: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advance, "STEP_S", 0.05)

    def steps() -> Generator[Any, Any, Any]:
        yield A
        endless()

    stuck = Replay(steps())
    stuck.answer([REPLY])
    assert stuck.failure is not None
    kind, detail = stuck.failure
    assert kind == "pipeline_error"
    assert "it did not end within 0.05 s of processor time" in detail
    assert endless.__name__ in detail


def test_processor_time_is_limited_in_a_step_alone() -> None:
    before = signal.getsignal(signal.SIGPROF)
    Replay(_one_call())
    assert signal.getsignal(signal.SIGPROF) is before
    assert signal.getitimer(signal.ITIMER_PROF) == (0.0, 0.0)


def _one_call() -> Generator[Any, Any, Any]:
    yield A
