"""A pipeline, replayed: run until it waits for replies that are not there. Pure: no I/O, no clock."""

import traceback
from collections.abc import Generator, Sequence
from typing import Any, Generic, TypeVar

from shared.contracts.calls import MOST_SLOTS, Call, Yielded
from shared.contracts.replies import Failure, FailureKind, Reply, SampleFailed

T = TypeVar("T")
AWAY = FailureKind.UNAVAILABLE
"""The one failure of a call that ends its sample."""


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
        """Go on with the replies to `calls`, in their order.

        What was away for too long ends the sample, whatever its pipeline would do without: an answer that came about
        because a server was away is no answer to what was asked.
        """
        self.position += 1
        if away := next((each for each in replies if isinstance(each, Failure) and each.kind is AWAY), None):
            self.fail(away.kind.value, away.detail)
            return
        self._send(replies[0] if self._single else list(replies))

    def fail(self, kind: str, detail: str) -> None:
        """End with a failure from outside the pipeline, such as a replay that diverged."""
        self.calls = ()
        self.failure = (kind, detail)

    def check_size(self) -> None:
        """Return if what it waits for can be stored.

        Raises:
            TooManyCalls: it waits for too many calls at once, or has waited too often.
        """
        if len(self.calls) > MOST_SLOTS:
            raise TooManyCalls(f"the pipeline asks for {len(self.calls)} calls at once; a step holds {MOST_SLOTS}")
        # A sample that waits stores the position after this one.
        if self.calls and self.position >= MOST_SLOTS:
            raise TooManyCalls(f"the pipeline has waited for replies {MOST_SLOTS} times, which is as often as it may")

    def _send(self, value: Any) -> None:
        self.calls = ()
        try:
            while not self.calls:
                self._wait_for(self._steps.send(value))
                value = []  # a pipeline that yields no calls waits for nothing
        except StopIteration as stop:
            self.result = stop.value
        except SampleFailed as failed:
            self.failure = (failed.kind, failed.detail)
        except Exception:  # noqa: BLE001 - a defect in one pipeline must end this sample only, and say where
            self.failure = ("pipeline_error", traceback.format_exc(limit=-4))

    def _wait_for(self, yielded: Yielded) -> None:
        self._single = not isinstance(yielded, Sequence)
        self.calls = tuple(yielded) if isinstance(yielded, Sequence) else (yielded,)
