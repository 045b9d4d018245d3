"""Read files into the page cache ahead of their use, in a thread of the lowest priority."""

import asyncio
import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil

CHUNK = 4 << 20
"""Bytes that are read between two checks whether to stop."""
RESERVE = 1 << 30
"""Bytes of memory that must stay available, so that reading ahead evicts no other pages."""

_log = logging.getLogger(__name__)


async def read_ahead(path: Path) -> int:
    """Read a file, or all files of a folder, and return the bytes read: 0 if memory is short.

    A cancellation ends it at the next chunk.
    """
    stopping = threading.Event()
    # A thread of its own, since a lowered priority cannot be raised again.
    executor = ThreadPoolExecutor(1, "read-ahead", initializer=_lower_priority)
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, _read_all, path, stopping)
    finally:
        stopping.set()
        executor.shutdown(wait=False)


def _read_all(path: Path, stopping: threading.Event) -> int:
    try:
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        size = sum(file.stat().st_size for file in files)
        if psutil.virtual_memory().available < size + RESERVE:
            return 0
        began = time.monotonic()
        done = sum(_read(file, stopping) for file in files)
    except OSError as error:
        _log.warning("cannot read ahead: %s", error)
        return 0
    if not stopping.is_set():
        _log.info("read %d MiB ahead in %.1f s", done >> 20, time.monotonic() - began)
    return done


def _read(file: Path, stopping: threading.Event) -> int:
    """Read a file, discard its bytes, which stay in the kernel's page cache, and return how many there were."""
    buffer, done = bytearray(CHUNK), 0
    with file.open("rb", buffering=0) as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while not stopping.is_set() and (count := opened.readinto(buffer)):
            done += count
    return done


def _lower_priority() -> None:
    """Give this thread the lowest priority for I/O and for the processor."""
    thread = threading.get_native_id()
    with suppress(psutil.Error, OSError):
        psutil.Process(thread).ionice(psutil.IOPRIO_CLASS_IDLE)
        os.setpriority(os.PRIO_PROCESS, thread, 19)
