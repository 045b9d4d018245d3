"""Reading ahead: what a load would read from the disk is in the page cache afterwards, and nobody is held up."""

import asyncio
import ctypes
import mmap
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import anyio
import psutil
import pytest

from services.guard.drivers import launched
from services.guard.drivers.launched import CHUNK, RESERVE, read_ahead
from services.guard.drivers.process import ProcessDriver
from shared.settings import Device, Model

pytestmark = pytest.mark.anyio

SIZE = 4 * CHUNK + 1


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(os.urandom(SIZE))
    evict(path)
    if cached(path) > 0.5:
        pytest.skip(f"{tmp_path} is on a file system that keeps its pages in memory")
    return path


def evict(path: Path) -> None:
    with path.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def cached(path: Path) -> float:
    size = path.stat().st_size
    with path.open("rb") as opened, mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_COPY) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
        kernel = ctypes.CDLL(None, use_errno=True)
        asked = kernel.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), pages)
        del first
    assert asked == 0, os.strerror(ctypes.get_errno())
    return sum(page & 1 for page in pages) / len(pages)


async def test_a_file_is_in_the_page_cache_after_it_was_read_ahead(file: Path) -> None:
    assert await read_ahead(file) == SIZE
    assert cached(file) == 1.0


async def test_the_driver_of_a_file_reads_it_ahead(file: Path) -> None:
    await ProcessDriver("model", Model(driver="process", path=file), Device()).warm()
    assert cached(file) == 1.0


async def test_a_folder_is_all_of_its_files(file: Path) -> None:
    (file.parent / "parts").mkdir()
    (file.parent / "parts" / "more.safetensors").write_bytes(b"x" * 1000)
    assert await read_ahead(file.parent) == SIZE + 1000
    assert cached(file) == 1.0


async def test_nothing_is_read_where_memory_is_short(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for available, read in ((SIZE + RESERVE - 1, 0), (SIZE + RESERVE, SIZE)):
        memory = SimpleNamespace(available=available)
        monkeypatch.setattr(psutil, "virtual_memory", lambda memory=memory: memory)
        assert await read_ahead(file) == read
    evict(file)


async def test_a_cancelled_reading_ends_at_the_next_chunk(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended, go_on = asyncio.Event(), asyncio.Event(), threading.Event()
    loop, read = asyncio.get_running_loop(), launched._read_all

    def slowly(size: int) -> bytearray:
        loop.call_soon_threadsafe(begun.set)
        go_on.wait()
        return bytearray(size)

    def reading(path: Path, stopping: threading.Event) -> int:
        try:
            return read(path, stopping)
        finally:
            loop.call_soon_threadsafe(ended.set)

    monkeypatch.setattr(launched, "bytearray", slowly, raising=False)
    monkeypatch.setattr(launched, "_read_all", reading)
    task = asyncio.create_task(read_ahead(file))
    with anyio.fail_after(60):
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task  # at once: the thread still stands
        assert not ended.is_set()
        go_on.set()
        await ended.wait()
    assert cached(file) < 1.0


async def test_the_reading_thread_goes_last(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def look(_path: Path, _stopping: object) -> int:
        thread = threading.get_native_id()
        seen.append((psutil.Process(thread).ionice().ioclass, os.getpriority(os.PRIO_PROCESS, thread)))
        return 0

    monkeypatch.setattr(launched, "_read_all", look)
    before = os.getpriority(os.PRIO_PROCESS, 0)
    await read_ahead(file)
    assert seen == [(psutil.IOPRIO_CLASS_IDLE, 19)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


async def test_a_file_that_has_gone_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert await read_ahead(tmp_path / "nothing.gguf") == 0
    assert "not read ahead" in caplog.text
