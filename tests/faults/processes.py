"""The processes of a running stack, by the vocabulary's names, and what signals do to them."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from mathrag.client import address
from tests.faults.vocabulary import Subject
from tests.running import DEADLINE_S, RunningStack, mathrag

SERVICES = {
    Subject.JUDGE: "judge",
    Subject.GENERATOR: "generator",
    Subject.GUARD: "guard",
    Subject.ORCHESTRATOR: "orchestrator",
    Subject.RETRIEVER: "retriever",
    Subject.REDIS: "redis",
    Subject.POSTGRES: "postgres",
}
"""The supervisor's name of each."""


class Processes:
    """The processes of one stack."""

    def __init__(self, stack: RunningStack) -> None:
        self._stack = stack

    def of(self, subject: Subject) -> list[psutil.Process]:
        """Return the processes of the subject, parents before children, so that no child is started in between."""
        if subject is Subject.EVERYTHING:
            return _tree(psutil.Process(self.supervisor()))
        if subject is Subject.CHILD:
            return _tree(psutil.Process(self._stack.pid("judge")))[1:]
        if subject is Subject.SERVER:
            return self.servers()
        return _tree(psutil.Process(self._stack.pid(SERVICES[subject])))

    def servers(self) -> list[psutil.Process]:
        """The model servers: the guard's children, as soon as they run their own program.

        A child that is stopped earlier also stops the guard, which waits for it.
        """
        with suppress(psutil.NoSuchProcess):
            guard = psutil.Process(self._stack.pid("guard"))
            return [child for child in guard.children(recursive=True) if _command(child) not in ([], guard.cmdline())]
        return []

    def supervisor(self) -> int:
        """Return the process id of the stack's supervisor."""
        now = address.read_state(self._stack.data_dir)
        assert now is not None
        return now.pid

    def kill(self, subject: Subject) -> None:
        """Send SIGKILL to all processes of the subject at once."""
        self.signal(subject, signal.SIGKILL)

    def signal(self, subject: Subject, number: signal.Signals) -> list[psutil.Process]:
        """Send it to each that is there; returns these."""
        found = self.of(subject)
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return found

    def restart(self, subject: Subject) -> None:
        """Stop it, and return when its successor is ready."""
        if subject is Subject.EVERYTHING:
            self.stop()
            self.start()
        else:
            self._stack.restart(SERVICES[subject])

    def stop(self) -> None:
        """End the stack as an operator does, if it has not ended otherwise."""
        assert mathrag("down", "--data-dir", str(self._stack.data_dir)).returncode == 0

    def start(self) -> None:
        """Start the stack again on its data, at the same address."""
        command = ("up", "--detach", "--data-dir", str(self._stack.data_dir), "--port", "0")
        started = mathrag(*command, **self._stack.environment)
        assert started.returncode == 0, started.stderr


@contextmanager
def judge_worker(environment: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Run another worker of the judge lane in addition to the stack's, as on another host."""
    with (folder / "judge.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "services.judge"],
            env={**environment, "HOME": str(folder)}, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()


def resume(processes: list[psutil.Process]) -> None:
    """Send SIGCONT to those that still exist."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.resume()


def until(what: str, holds: Callable[[], object], pause_s: float = 0.02) -> None:
    """Return once `holds` does."""
    deadline = time.monotonic() + DEADLINE_S
    while not holds():
        assert time.monotonic() < deadline, f"gave up waiting until {what}"
        time.sleep(pause_s)


def _tree(process: psutil.Process) -> list[psutil.Process]:
    return [process, *process.children(recursive=True)]


def _command(process: psutil.Process) -> list[str]:
    """Return the command line of a process; empty if it has ended."""
    with suppress(psutil.NoSuchProcess):
        return list(process.cmdline())
    return []
