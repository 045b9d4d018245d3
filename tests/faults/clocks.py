"""A stack whose services have separate wall clocks, each in a file: libfaketime reads it, the test writes it.

`python -m tests.faults.clocks DATA_DIR` runs such a stack in the foreground, as `mathrag up` runs a plain one.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from mathrag_gate.stack.process import Child
from mathrag_gate.stack.supervisor import Chore, StartupTask, Supervisor
from mathrag_gate.stack.supervisor import build_stack as build
from shared.settings import load
from tests.faults.processes import SERVICES, until
from tests.faults.vocabulary import Subject
from tests.running import RunningStack, mathrag

LIBRARIES = tuple(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
CACHE_S = 1
"""Interval at which a process reads its file."""


class Clocks:
    """The wall clocks of a stack's services; their monotonic clocks are the machine's, as in life."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def file(self, name: str) -> Path:
        """Return the file that sets the clock of a service."""
        return self._folder / name

    def set(self, name: str, seconds: float, rate: float = 1.0) -> None:
        """Set a clock `seconds` off the true time, running at `rate`; the service sees it within a second."""
        partial = self._folder / f"{name}.partial"
        partial.write_text(f"{seconds:+}s x{rate}\n" if rate != 1.0 else f"{seconds:+}s\n")
        partial.rename(self.file(name))

    def jump(self, subject: Subject, seconds: float) -> None:
        """Move the clock of a service's host or, for `Subject.CLOCK`, of every host but the database's."""
        hosts = [name for each, name in SERVICES.items() if each is not Subject.POSTGRES]
        for name in hosts if subject is Subject.CLOCK else [SERVICES[subject]]:
            self.set(name, seconds)

    def environment(self, name: str) -> dict[str, str]:
        """Return the environment that makes a process read this clock."""
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self.file(name)),
            "FAKETIME_CACHE_DURATION": str(CACHE_S),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Files have the machine's times.
            "NO_FAKE_STAT": "1",
        }


@contextmanager
def clocked_stack(data_dir: Path, **environment: str) -> Iterator[tuple[RunningStack, Clocks]]:
    """Run a stack whose services have such clocks, all correct at first."""
    clocks = Clocks(data_dir.with_name("clocks"))
    clocks._folder.mkdir(parents=True)
    for name in SERVICES.values():
        clocks.set(name, 0)
    log = data_dir.with_name("supervisor.log")
    with log.open("ab") as output:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.clocks", str(data_dir)],
            stdout=output, stderr=subprocess.STDOUT, env={**os.environ, **environment},
        )  # fmt: skip
    try:
        until("it runs", lambda: data_dir.with_name("running").exists() or supervisor.poll() is not None)
        assert supervisor.poll() is None, log.read_text()
        stack = RunningStack(data_dir)
        try:
            yield stack, clocks
        finally:
            stack.api.close()
    finally:
        mathrag("down", "--data-dir", str(data_dir))
        supervisor.wait(60)


def _with_clock(row: Child | StartupTask | Chore, clocks: Clocks) -> Child | StartupTask | Chore:
    if not isinstance(row, Child):
        return row
    return replace(row, environment={**row.environment, **clocks.environment(row.name)})


async def _run(data_dir: Path) -> None:
    built = build(load(), data_dir=data_dir, port=0)
    clocks = Clocks(data_dir.with_name("clocks"))
    supervisor = Supervisor(
        [_with_clock(row, clocks) for row in built.table()],
        data_dir=data_dir,
        url=built.url,
        ready=lambda _name, _seconds: None,
        running=(data_dir.with_name("running")).touch,
    )
    running = asyncio.create_task(supervisor.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
    await asyncio.gather(running, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(_run(Path(sys.argv[1]).absolute()))
