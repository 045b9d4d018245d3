"""Limit the processor time of code that may never end, such as a step of a plug-in's pipeline."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class ProcessorTimeExceeded(BaseException):
    """The code has used up its processor time. No `Exception`, because such code may ignore exceptions in a loop."""


@contextmanager
def limit_processor_time(seconds: float) -> Iterator[None]:
    """Raise `ProcessorTimeExceeded` in the block once this process has used `seconds` of processor time in it.

    Waiting for a busy machine does not count. Python receives signals in the main thread only: in others, nothing is
    limited. The block must not await anything.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(_signal: int, _frame: FrameType | None) -> None:
        raise ProcessorTimeExceeded(f"it did not end within {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
