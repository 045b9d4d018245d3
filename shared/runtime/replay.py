"""Replay a pipeline until it waits for missing replies. Pure: no I/O and no clock but the limit on endless steps."""

import traceback
from collections.abc import Generator, Sequence
from typing import Any, Generic, TypeVar

from shared.contracts.calls import MOST_SLOTS, Call, Yielded
from shared.contracts.replies import Failure, FailureKind, Reply, SampleFailed
from shared.processes.processor_time import limit_processor_time

T = TypeVar("T")
AWAY = FailureKind.UNAVAILABLE
"""The only failure of a call that always ends its sample."""
STEP_S = 10.0
"""Processor time of a step, which usually takes milliseconds. An endless one would stop its worker, and so all jobs."""


class TooManyCalls(ValueError):
    """A pipeline asks for more than can be stored; the message has the number and the limit."""


class Replay(Generic[T]):
    """One pipeline run. After construction and after each `answer`, exactly one of these holds:

    * `calls` is not empty: the pipeline waits for their replies, at `position`;
    * `result` is set: it ended;
    * `failure` is set: it failed with (kind, detail).
    """

    def __init__(self, steps: Generator[Yielded, Any, T]) -> None:
        self._steps = steps
        self._single = False
        self.position = 0
        self.calls: tuple[Call, ...] = ()
        self.result: T | None = None
        self.failure: tuple[str, str] | None = None
        self._send(None)

    def answer(self, replies: Sequence[Reply]) -> None:
        """Continue with the replies to `calls`, in their order.

        A reply that is `unavailable` ends the sample, even if its pipeline has a fallback: an answer that depends on
        an outage would not measure the pipeline.
        """
        self.position += 1
        if away := next((each for each in replies if isinstance(each, Failure) and each.kind is AWAY), None):
            self.fail(away.kind.value, away.detail)
            return
        self._send(replies[0] if self._single else list(replies))

    def fail(self, kind: str, detail: str) -> None:
        """End with a failure that the pipeline did not raise, such as a diverged replay."""
        self.calls = ()
        self.failure = (kind, detail)

    def check_size(self) -> None:
        """Check that the calls that it waits for can be stored.

        Raises:
            TooManyCalls: it waits for too many calls at once, or has too many rounds.
        """
        if len(self.calls) > MOST_SLOTS:
            raise TooManyCalls(f"the pipeline asks for {len(self.calls)} calls at once; a step holds {MOST_SLOTS}")
        # A waiting sample stores the next position.
        if self.calls and self.position >= MOST_SLOTS:
            raise TooManyCalls(f"the pipeline has waited for replies {MOST_SLOTS} times, which is as often as it may")

    def _send(self, value: Any) -> None:
        self.calls = ()
        try:
            with limit_processor_time(STEP_S):
                self._run(value)
        except StopIteration as stop:
            self.result = stop.value
        except SampleFailed as failed:
            self.failure = (failed.kind, failed.detail)
        except KeyboardInterrupt:
            raise
        except BaseException:  # noqa: BLE001 - a defect of a pipeline must end only this sample, with its traceback
            self.failure = ("pipeline_error", traceback.format_exc(limit=-4))

    def _run(self, value: Any) -> None:
        """Go on until it waits for calls; who yields none waits for nothing."""
        for _ in range(MOST_SLOTS):
            self._wait_for(self._steps.send(value))
            if self.calls:
                return
            value = []
        raise TooManyCalls(f"the pipeline has yielded no call {MOST_SLOTS} times in a row")

    def _wait_for(self, yielded: Yielded) -> None:
        self._single = not isinstance(yielded, Sequence)
        calls = tuple(yielded) if isinstance(yielded, Sequence) else (yielded,)
        if strange := [type(each).__name__ for each in calls if not isinstance(each, Call)]:
            raise TypeError(f"a pipeline yields calls, and this one has yielded {strange[0]}")
        self.calls = calls
