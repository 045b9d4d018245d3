"""Faults of one client that others must not feel: it reads or sends slowly, or asks for what takes processor time,
memory or connections.

While it does so, a page of one row and `/healthz` are polled, and the orchestrator's memory is watched.
"""

import gzip
import io
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import psutil
import pyarrow as pa
import pytest
from pyarrow import parquet

from tests.faults.recording import Seen
from tests.running import RunningStack

LONGEST_S = 5.0
"""Longest answer that passes, since the machine may be busy; the goal is below a second, and the figures say what it
was."""
POLLED = ("/healthz", "/v1/datasets/world")
ROW = b"?b  term%d  ?a   => ?a  term%d  ?b\t0.192546584\t0.144859813\t0.183431953\t31\t214\t169\t?a\n"


class Others:
    """The answers that other clients get during the test."""

    def __init__(self, url: str) -> None:
        self.slowest = dict.fromkeys(POLLED, 0.0)
        self._url = url
        self._done = threading.Event()
        self._threads = [threading.Thread(target=self._poll, args=(path,)) for path in POLLED]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def _poll(self, path: str) -> None:
        while not self._done.wait(0.05):
            begun = time.monotonic()
            try:
                status = httpx2.get(f"{self._url}{path}", timeout=60, trust_env=False).status_code
            except httpx2.HTTPError:
                status = 0
            lasted = time.monotonic() - begun if status == 200 else 60.0
            self.slowest[path] = max(self.slowest[path], lasted)


@contextmanager
def unharmed(stack: RunningStack, seen: Seen) -> Iterator[None]:
    """Check that others are answered while the block runs, and that the orchestrator stays small."""
    others = Others(stack.url)
    with watch_memory(stack.pid("orchestrator")) as memory:
        others.start()
        try:
            yield
        finally:
            others.stop()
    for path, slowest in others.slowest.items():
        seen.figure(f"slowest answer of {path.replace('world', 'NAME')}, s", slowest)
    seen.figure("orchestrator, MiB at most", memory.own)
    assert max(others.slowest.values()) < LONGEST_S, others.slowest
    assert memory.own < PEAK_MIB


def connect(stack: RunningStack, request: str, body: bytes = b"", *, receive_bytes: int | None = None) -> socket.socket:
    url = httpx2.URL(stack.url)
    client = socket.socket()
    if receive_bytes is not None:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.settimeout(60)
    client.connect((url.host, url.port or 80))
    if request:
        client.sendall(f"{request} HTTP/1.1\r\nHost: {url.host}\r\n".encode() + body)
    return client


@pytest.mark.fault("L1")
def test_slow_readers_of_a_long_answer_keep_nobody_waiting(stack: RunningStack, seen: Seen) -> None:
    seen.describe("twelve clients that read the export of 100,000 rules at 13 KB/s")
    rules = b"".join(ROW % (number // 400, number % 400) for number in range(100_000))
    assert stack.api.post("/v1/rules/import?name=L1", content=rules, timeout=300).status_code in (200, 201)
    with unharmed(stack, seen), ExitStack() as opened:
        request = "GET /v1/rules/L1/export"
        readers = [opened.enter_context(connect(stack, request, b"\r\n", receive_bytes=4096)) for _ in range(12)]
        for _ in range(100):
            for reader in readers:
                reader.recv(1300)
            time.sleep(0.1)
    seen.note("other requests are answered as usual")


@pytest.mark.fault("L2")
def test_slow_uploads_give_their_places_back(stack: RunningStack, seen: Seen) -> None:
    seen.describe("the maximum number of uploads at once, each of 200 MB at 5 KB/s")
    head = b"Expect: 100-continue\r\nContent-Length: 200000000\r\n\r\n"
    with unharmed(stack, seen), ExitStack() as opened:
        slow = [opened.enter_context(connect(stack, f"POST /v1/datasets?name=L2-{n}", head)) for n in range(4)]
        assert {client.recv(100)[:12] for client in slow} == {b"HTTP/1.1 100"}
        begun = time.monotonic()
        assert post(stack, "/v1/datasets?name=L2", b'{"question": "What is 1 + 1?"}\n').status_code == 429
        while post(stack, "/v1/datasets?name=L2", b'{"question": "What is 1 + 1?"}\n').status_code == 429:
            slow = [client for client in slow if send(client, b"x" * 5000)]
            time.sleep(1)
            assert time.monotonic() - begun < 300
    seen.note("408, and their places are free again")
    seen.figure("seconds until a further upload is taken", time.monotonic() - begun)


def send(client: socket.socket, data: bytes) -> bool:
    try:
        client.sendall(data)
    except OSError:
        return False
    return True


@pytest.mark.fault("L3")
def test_idle_connections_of_a_stranger_keep_nobody_out(stack: RunningStack, seen: Seen) -> None:
    seen.describe("520 connections that send nothing; every closed one is opened again")
    with unharmed(stack, seen), ExitStack() as opened:
        for _ in range(2):
            for _ in range(520):
                opened.enter_context(connect(stack, ""))
            time.sleep(5)
    seen.note("the connection that has waited longest is closed for a new one")


def post(stack: RunningStack, path: str, body: bytes, media: str = "application/octet-stream") -> httpx2.Response:
    return stack.api.post(path, content=body, headers={"content-type": media}, timeout=600)


def send_form(stack: RunningStack) -> httpx2.Response:
    """A form with 490 fields that no job has."""
    fields = "&".join(["name=a", "pipeline=dense", *(f"params.x{number}=1" for number in range(490))])
    return post(stack, "/submit", fields.encode(), "application/x-www-form-urlencoded")


def send_packed_graph(stack: RunningStack) -> httpx2.Response:
    """A gzip file whose names are 1,000 characters long and 1 GB together."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as file:
        for number in range(500_000):
            file.write(b"%s%06d\tr\t%s%06d\n" % (b"a" * 990, number, b"b" * 990, number))
    return post(stack, "/v1/graphs?name=U3", packed.getvalue())


def send_long_names(stack: RunningStack) -> httpx2.Response:
    """A gzip file with names of 500,000 characters."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as file:
        for number in range(1000):
            file.write(b"%s%06d\tr\t%s%06d\n" % (b"a" * 500_000, number, b"b" * 500_000, number))
    return post(stack, "/v1/graphs?name=U3-names", packed.getvalue())


def send_many_values(stack: RunningStack) -> httpx2.Response:
    """100 MB of JSON lines that are each 340,000 empty lists."""
    return post(
        stack,
        "/v1/corpora?name=U4-many&on_error=skip",
        (b'{"text":"x","meta":{"a":[' + b"[]," * 340_000 + b"[]]}}\n") * 100,
    )


def send_most_values(stack: RunningStack) -> httpx2.Response:
    """60 MB of JSON lines with the maximum number of values per line; they are stored."""
    lines = (b'{"text":"x %d","meta":{"a":[' % number + b"[]," * 9_900 + b"[]]}}\n" for number in range(2000))
    return post(stack, "/v1/corpora?name=U4-most", b"".join(lines))


def send_wide_table(stack: RunningStack) -> httpx2.Response:
    """60 MB of CSV with the maximum number of values of a line in one cell."""
    return post(
        stack,
        "/v1/datasets?name=U4-table",
        b"question,golden_answers\n" + (b'x,"[' + b"[]," * 9_900 + b'[]]"\n') * 2000,
    )


def plan_experiment(stack: RunningStack) -> httpx2.Response:
    """Plans of an experiment of 1,000 cells, twelve at once."""
    body = {
        "name": "U5", "datasets": [{"dataset": "world", "corpus": "world"}],
        "variants": [{"name": "a", "pipeline": "self-consistency"}], "grid": {"rrf_k": list(range(1, 1001))},
    }  # fmt: skip
    answered: list[httpx2.Response] = []
    asking = [
        threading.Thread(
            target=lambda: answered.append(
                post(stack, "/v1/experiments/plan", json.dumps(body).encode(), "application/json")
            )
        )
        for _ in range(12)
    ]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join()
    assert {reply.status_code for reply in answered} == {200}
    return answered[0]


REQUESTS: list[tuple[str, Callable[[RunningStack], httpx2.Response], int]] = [
    ("U1", send_form, 422),
    ("U3", send_packed_graph, 413),
    ("U3", send_long_names, 422),
    ("U4", send_many_values, 422),
    ("U4", send_most_values, 201),
    ("U4", send_wide_table, 422),
    ("U5", plan_experiment, 200),
]


@pytest.mark.parametrize(
    ("send", "status"),
    [pytest.param(send, status, marks=pytest.mark.fault(fault), id=send.__name__) for fault, send, status in REQUESTS],
)
def test_a_request_that_takes_much_work_keeps_nobody_waiting(
    stack: RunningStack, seen: Seen, send: Callable[[RunningStack], httpx2.Response], status: int
) -> None:
    seen.describe((send.__doc__ or "").rstrip("."))
    with unharmed(stack, seen):
        begun = time.monotonic()
        reply = send(stack)
    seen.figure("seconds until it is answered", time.monotonic() - begun)
    assert reply.status_code == status, reply.text[:300]
    seen.note(f"{status}; other requests are answered in the meantime")


@pytest.mark.fault("U6")
def test_a_job_of_many_samples_is_cancelled_at_once(scripted: RunningStack, seen: Seen) -> None:
    seen.describe("a job of 200,000 samples, cancelled five seconds after it began")
    lines = b"".join(b'{"question":"q %d","answer":"1"}\n' % number for number in range(200_000))
    assert post(scripted, "/v1/datasets?name=U6", lines).status_code in (200, 201)
    with unharmed(scripted, seen):
        job = scripted.submit("U6", dataset="U6", corpus=None, pipeline="closed-book")
        time.sleep(5)
        begun = time.monotonic()
        assert scripted.api.post(f"/v1/jobs/{job}/cancel", timeout=300).status_code == 202
        seen.figure("seconds until the cancellation is answered", time.monotonic() - begun)
        scripted.wait(job, lambda document: document["state"] == "cancelled")
        seen.figure("seconds until the job has ended", time.monotonic() - begun)
    seen.note("answered at once; the job ends, and other requests are answered in the meantime")


# Files that unpack to gigabytes, each in a different way. They are built without unpacking them.

MEGABYTE = 1_000_000


def longest_rows() -> bytes:
    """5,000 rows just below the limit of a row: 4.5 GB."""
    return _write([pa.table({"text": _repeat("x" * 900_000, 5_000)})])


def long_texts() -> bytes:
    """50 rows of one text of 100 MB that is in the dictionary once: 5 GB."""
    return _write([pa.table({"text": _repeat("x" * (100 * MEGABYTE), 50)})])


def nested_lists() -> bytes:
    """One row with a list of 50,000,000 equal texts."""
    offsets, texts = pa.array([0, 50_000_000], pa.int32()), _repeat("the same", 50_000_000)
    return _write([pa.table({"text": ["x"], "messages": pa.ListArray.from_arrays(offsets, texts)})])


def many_groups() -> bytes:
    """500 row groups of four rows: 1.8 GB."""
    return _write([pa.table({"text": _repeat("x" * 900_000, 4)})] * 500)


def many_columns() -> bytes:
    """One row of 20,000 columns."""
    return _write([pa.table({"text": ["x"], **{f"c{number}": [1] for number in range(20_000)}})])


def lying() -> bytes:
    """3 GB in plain pages whose footer gives their length as 1 byte."""
    group = pa.table({"text": ["x" * 900_000] * 50})
    honest = _write([group] * 66, use_dictionary=False)
    size = parquet.read_metadata(io.BytesIO(honest)).row_group(0).column(0).total_uncompressed_size
    return honest.replace(_varint(size), _pad(1, len(_varint(size))))


FILES: dict[str, Callable[[], bytes]] = {
    each.__name__: each for each in (longest_rows, long_texts, nested_lists, many_groups, many_columns, lying)
}


def wide_header(columns: int) -> bytes:
    """Return a CSV file of one row with this many columns."""
    names = ["text", *(f"c{number}" for number in range(columns - 1))]
    return ",".join(names).encode() + b"\n" + b",".join([b"x"] * columns) + b"\n"


def _repeat(text: str, times: int) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(times, dtype=np.int32)), [text])


def _write(tables: list[Any], **options: Any) -> bytes:
    file = io.BytesIO()
    settings = {"compression": "zstd", "store_schema": False, **options}
    with parquet.ParquetWriter(file, tables[0].schema, **settings) as writer:
        for table in tables:
            writer.write_table(table)
    return file.getvalue()


def _varint(value: int) -> bytes:
    """A number as Thrift's compact protocol writes it: zigzag, seven bits a byte."""
    return bytes(_sevens(value * 2))


def _sevens(value: int) -> Iterator[int]:
    while value > 127:
        yield value & 127 | 128
        value >>= 7
    yield value


def _pad(value: int, length: int) -> bytes:
    """Encode a number in more bytes than it needs, so that nothing behind it moves."""
    digits = [value * 2 >> 7 * at & 127 for at in range(length)]
    return bytes([digit | 128 for digit in digits[:-1]] + digits[-1:])


# The memory that the orchestrator takes for them.

PEAK_MIB = 900
"""Memory limit of the orchestrator for any upload, in MiB."""
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
@pytest.mark.parametrize("name", FILES)
def test_a_small_parquet_file_of_gigabytes_is_refused_and_the_orchestrator_stays_small(
    stack: RunningStack, seen: Seen, name: str
) -> None:
    file = FILES[name]
    seen.describe(f"a Parquet file: {file.__doc__}".rstrip("."))
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
    seen.note("refused with a message, no part is kept, and the unpacking process has ended")
    seen.figure("bytes uploaded", len(content))
    seen.figure("orchestrator, MiB at most", memory.own)
    seen.figure("unpacking process, MiB at most", memory.child)


@pytest.mark.fault("X7")
def test_a_csv_header_of_40000_columns_is_refused_at_once(stack: RunningStack, seen: Seen) -> None:
    seen.describe("a CSV file whose header has 40,000 columns")
    refused = stack.api.post("/v1/corpora?name=X7", content=wide_header(40_000), timeout=30)
    assert refused.status_code == 422
    assert "has 40000 columns, more than 1000" in refused.json()["detail"]
    assert stack.api.get("/v1/corpora/X7").status_code == 404
    seen.note("refused with the number of columns and the limit")
    seen.figure("seconds until it is refused", refused.elapsed.total_seconds())
