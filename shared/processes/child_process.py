"""The main loop of a `ChildPool`'s child: JSON lines on pipes, limits on memory and time, and no orphans.

A child prints {"ready": true} when its libraries are loaded, then a reply for every request, in order.
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
"""Limit of address space; sympy needs about 70 MB, but a tower of powers would take all memory before the deadline."""


def serve(
    parent: int,
    deadline_s: float,
    load: Callable[[], Callable[[dict[str, Any]], dict[str, Any]]],
    memory_bytes: int = MEMORY_BYTES,
) -> None:
    """Answer the requests on stdin with the function that `load` returns, until stdin ends.

    The process ends with the process `parent`. An item that takes `deadline_s` seconds of processor time ends it by
    SIGPROF; waiting for a busy machine does not count. `memory_bytes` limits its address space.
    """
    die_with(parent)
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    replies = claim_stdout()
    answer = load()  # before `ready`, so that it does not count against the first item's deadline
    send(replies, {"ready": True})
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, deadline_s)
        reply = answer(json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        send(replies, reply)


def claim_stdout() -> TextIO:
    """Return a stream to stdout for replies, and redirect all other output, of Python or C, to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)
    return replies


def send(replies: TextIO, message: dict[str, Any]) -> None:
    """Write a message as one JSON line."""
    replies.write(json.dumps(message) + "\n")
    replies.flush()
