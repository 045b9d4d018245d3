"""A replay is the pipeline run until it waits for a reply that is not there: pure, and never raising."""

import contextlib
import re
import signal
from collections.abc import Callable, Generator
from typing import Any

import pytest

from shared.calls import Generate, Grade
from shared.pipelines.grading import run_and_grade, with_verdict
from shared.replies import Failure, FailureKind, Generated, Graded, require
from shared.runtime import advance
from shared.runtime.advance import Replay
from shared.samples import Extraction, Item, Outcome, Steps

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
    assert "test_replay.py" in detail
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
