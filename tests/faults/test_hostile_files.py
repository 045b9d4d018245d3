"""Faults of uploads that are small and would take very much: they are refused, and the orchestrator stays small."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.faults import bombs
from tests.faults.recording import Seen
from tests.running import RunningStack

PEAK_MIB = 900
"""Of the orchestrator, whatever is uploaded."""
CHILD_MIB = 512
"""Of the process that unpacks a file."""


class Memory:
    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._done = threading.Event()
        self.child = 0.0

    def watch(self) -> None:
        while not self._done.wait(0.02):
            for child in self._process.children():
                try:
                    self.child = max(self.child, child.memory_info().rss / (1 << 20))
                except psutil.NoSuchProcess:
                    continue

    def stop(self) -> None:
        self._done.set()

    @property
    def own(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024

    def children(self) -> list[psutil.Process]:
        return self._process.children()


@contextmanager
def watch_memory(pid: int) -> Iterator[Memory]:
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    memory = Memory(pid)
    watching = threading.Thread(target=memory.watch)
    watching.start()
    try:
        yield memory
    finally:
        memory.stop()
        watching.join()


@pytest.mark.fault("X6")
@pytest.mark.parametrize("name", bombs.FILES)
def test_a_small_parquet_file_of_gigabytes_is_refused_and_the_orchestrator_stays_small(
    stack: RunningStack, seen: Seen, name: str
) -> None:
    file = bombs.FILES[name]
    seen.describe(f"a Parquet file, {file.__doc__}".rstrip("."))
    content = file()
    with watch_memory(stack.pid("orchestrator")) as memory:
        refused = stack.api.post(f"/v1/corpora?name=X6-{name}", content=content, timeout=300)
    assert refused.status_code in (413, 422), refused.text
    assert refused.json()["detail"].startswith("upload")
    assert memory.own < PEAK_MIB
    assert memory.child <= CHILD_MIB
    assert memory.children() == []
    assert stack.api.get(f"/v1/corpora/X6-{name}").status_code == 404
    good = stack.api.post(f"/v1/datasets?name=X6-{name}", content=b'{"question": "What is 1 + 1?"}\n')
    assert good.status_code == 201
    seen.note("refused in words, nothing kept; the process that unpacked it is gone")
    seen.figure("bytes uploaded", len(content))
    seen.figure("orchestrator, MiB at most", memory.own)
    seen.figure("unpacking process, MiB at most", memory.child)


@pytest.mark.fault("X7")
def test_a_csv_header_of_40000_columns_is_refused_at_once(stack: RunningStack, seen: Seen) -> None:
    seen.describe("a CSV file whose header has 40,000 columns")
    refused = stack.api.post("/v1/corpora?name=X7", content=bombs.wide_header(40_000), timeout=30)
    assert refused.status_code == 422
    assert "has 40000 columns, more than 1000" in refused.json()["detail"]
    assert stack.api.get("/v1/corpora/X7").status_code == 404
    seen.note("refused with the number of columns and the limit")
    seen.figure("seconds until it is refused", refused.elapsed.total_seconds())
