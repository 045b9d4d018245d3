"""What the processes of a `ChildPool` have in common: JSON lines on pipes, a bound of memory, and no orphans.

One {"ready": true} when the libraries are loaded, then a reply for every request, in order.
"""

import json
import os
import resource
import signal
import sys
from collections.abc import Callable
from typing import Any, TextIO

from shared.orphans import die_with

MEMORY_BYTES = 2 << 30
"""Address space; sympy needs about 70 MB, a tower of powers would take all there is before the deadline."""


def serve(
    parent: int,
    deadline_s: float,
    load: Callable[[], Callable[[dict[str, Any]], dict[str, Any]]],
    memory_bytes: int = MEMORY_BYTES,
) -> None:
    """Answer what comes on stdin until it ends, with the function that `load` returns.

    `parent` is the process id without which there is no point in living. An item that takes `deadline_s` seconds of
    the processor ends the process by SIGPROF: waiting for a busy machine does not count. It has at most `memory_bytes`
    of address space.
    """
    die_with(parent)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    replies = claim_stdout()
    answer = load()  # before `ready`, so that the first item's clock does not pay for it
    say(replies, {"ready": True})
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, deadline_s)
        reply = answer(json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        say(replies, reply)


def claim_stdout() -> TextIO:
    """Keep stdout for replies: whatever else prints, in Python or in C, goes to stderr from here on."""
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    return replies


def say(replies: TextIO, message: dict[str, Any]) -> None:
    """One message, on one line."""
    replies.write(json.dumps(message) + "\n")
    replies.flush()
