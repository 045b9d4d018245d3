"""End child processes with the process that started them, even if it is killed."""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with(parent: int, number: signal.Signals = signal.SIGKILL) -> None:
    """Ask the kernel to send this process `number` when the thread that started it ends (on Linux only).

    Call it in the child, with the pid of the process that started it: a fork does not inherit the request, and a
    parent that died before it is noticed here.
    """
    if _libc is None:
        return
    _libc.prctl(PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
