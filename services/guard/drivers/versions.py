"""Find the version of an installed program: from its Python package if it has one, else from `--version`."""

import asyncio
import os
from functools import partial
from importlib.metadata import Distribution
from pathlib import Path
from re import Pattern

from services.guard.drivers import trees
from services.guard.drivers.ports import DriverError
from shared.models.commands import Program
from shared.orphans import die_with

ANSWER_S = 300.0
"""`vllm --version` imports all of PyTorch first, which takes a minute on a slow host."""

_printed: dict[tuple[Path, int], str] = {}


async def find_version(path: Path, program: Program) -> str:
    """Return the version that `--version` prints for the program at `path`; cached while the file is unchanged.

    Raises:
        DriverError: it prints none.
    """
    if program.package and (found := await asyncio.to_thread(_read_package_version, path, program.package)):
        return found
    key = path, (await asyncio.to_thread(path.stat)).st_mtime_ns
    if key not in _printed:
        _printed[key] = await _run_version(path, program.version_pattern)
    return _printed[key]


def _read_package_version(path: Path, package: str) -> str | None:
    """Read the version of `package` from the environment of the Python script at `path`; None if it is another file."""
    with path.open("rb") as opened:
        interpreter = opened.readline(1 << 10)
    if not (interpreter.startswith(b"#!") and b"python" in interpreter):
        return None
    sites = [str(site) for site in path.resolve().parents[1].glob("lib/python3*/*-packages")]
    found = {each.version for each in Distribution.discover(name=package, path=sites)}
    return found.pop() if len(found) == 1 else None


async def _run_version(path: Path, version_pattern: Pattern[str]) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            path,
            "--version",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=trees.inherit_environment(),
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
    text = output.decode(errors="replace")
    if (found := version_pattern.search(text)) is None:
        raise DriverError(f"`{path} --version` prints no version but {text[:200]!r}")
    return found[1]
