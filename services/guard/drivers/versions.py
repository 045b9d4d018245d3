"""Which version of a program is installed: read from its Python package where it is one, else asked for."""

import asyncio
import os
from functools import partial
from importlib.metadata import Distribution
from pathlib import Path
from re import Pattern

from services.guard.drivers import trees
from services.guard.drivers.ports import DriverError
from shared.models.command_lines import Program
from shared.orphans import die_with

ANSWER_S = 300.0
"""`vllm --version` imports all of PyTorch first, which takes a minute on a slow host."""

_printed: dict[tuple[Path, int], str] = {}


async def of(path: Path, program: Program) -> str:
    """What `--version` prints of the program at `path`; asked once as long as the file is the same.

    Raises:
        DriverError: it prints none.
    """
    if program.package and (found := await asyncio.to_thread(_packaged, path, program.package)):
        return found
    key = path, (await asyncio.to_thread(path.stat)).st_mtime_ns
    if key not in _printed:
        _printed[key] = await _asked(path, program.printed)
    return _printed[key]


def _packaged(path: Path, package: str) -> str | None:
    """What `--version` of a script of Python prints: the version of `package` in the environment that it lies in."""
    with path.open("rb") as opened:
        interpreter = opened.readline(1 << 10)
    if not (interpreter.startswith(b"#!") and b"python" in interpreter):
        return None
    sites = [str(site) for site in path.resolve().parents[1].glob("lib/python3*/*-packages")]
    found = {each.version for each in Distribution.discover(name=package, path=sites)}
    return found.pop() if len(found) == 1 else None


async def _asked(path: Path, printed: Pattern[str]) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=trees.inherited(),
            preexec_fn=partial(die_with, os.getpid()),
        )
    except OSError as error:
        raise DriverError(f"`{path} --version` does not answer: {error}") from error
    try:
        output, _ = await asyncio.wait_for(process.communicate(), ANSWER_S)
    except TimeoutError as error:
        raise DriverError(f"`{path} --version` does not answer within {ANSWER_S:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    said = output.decode(errors="replace")
    if (found := printed.search(said)) is None:
        raise DriverError(f"`{path} --version` prints no version but {said[:200]!r}")
    return found[1]
