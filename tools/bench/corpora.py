"""Corpora of up to millions of documents: upload, indexes, restart and searches as they grow."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from threading import Event

import faiss
import httpx2
import msgspec
import numpy as np
import psutil
from tokenizers import Tokenizer

from services.retriever.index import VECTORS_FILE, FaissIndex
from shared.models.embedding import StaticEmbedder
from shared.settings import MODELS
from tools.bench import Rows, benchmark
from tools.bench.growth import draw_curves
from tools.bench.retrieval import JSON, LAYOUTS, K
from tools.bench.stack import Stack, start_stack

EMBEDDINGS = MODELS / "static-embeddings"
GIB = 1 << 30
CHUNK = 1000
"""Documents that are made at once."""
COMMON = 20_000
"""Words of the embedder's vocabulary that the texts are made of, the most frequent first."""
TOPICS, TOPIC_WORDS, FIRST_OF_TOPIC = 900, 20, 1000
"""Number of topics, words of each, and rank of the first of these words."""
TOPICAL, COMPOUND = 0.3, 0.02
"""Shares of the words that belong to a document's topic, and that are compounds of two."""
SINGLE, BATCH, BATCHES = 20, 128, 3
"""Searches that are sent one by one; searches in a request, and number of such requests."""
POLL_S = 0.1
BUSY = ("retriever", "postgres", "orchestrator")
KINDS = ("dense", "sparse")
PAGES = {
    "corpus, ms": "/v1/corpora/passages", "its page, ms": "/corpora/passages",
    "documents, ms": "/v1/corpora/passages/documents",
}  # fmt: skip
SIZES = """
    SELECT pg_total_relation_size('documents') + pg_total_relation_size('corpus_documents'),
        (SELECT path FROM indexes WHERE kind = 'dense'), (SELECT path FROM indexes WHERE kind = 'sparse')"""
INDEXES = "SELECT dense_index, sparse_index FROM corpora"
CURVES = {
    "Milliseconds": ("dense, ms", "dense of a batch, ms", "sparse, ms", "sparse of a batch, ms"),
    "Seconds": ("upload, s", "dense built, s", "sparse built, s", "ready again, s", "slowest health, s"),
    "GiB": ("database, GiB", "dense index, GiB", "sparse index, GiB", "building, GiB", "serving, GiB"),
}


class MadeUpTexts:
    """Passages of some 57 words, whose frequencies fall as in natural texts.

    Ranks of words are log-uniform (Zipf's law with exponent 1), lengths log-normal. Compounds let the vocabulary grow
    with the corpus.
    """

    def __init__(self) -> None:
        words = Tokenizer.from_file(str(EMBEDDINGS / "tokenizer.json")).get_vocab()
        known = [word for word in words if len(word) > 1 and word.isascii() and word.isalpha()]
        self._words = np.array(sorted(known, key=words.__getitem__)[:COMMON])

    def make(self, number: int) -> list[str]:
        """Return the texts of a chunk; they depend on its number alone."""
        dice = np.random.default_rng(number)
        lengths = dice.lognormal(np.log(50), 0.5, CHUNK).astype(int).clip(5, 400)
        count = int(lengths.sum())
        topics = np.repeat(dice.integers(TOPICS, size=CHUNK), lengths)
        ranks, others = COMMON ** dice.random((2, count)) - 1
        topical = FIRST_OF_TOPIC + topics * TOPIC_WORDS + dice.integers(TOPIC_WORDS, size=count)
        kind = dice.random(count)
        words = self._words[np.where(kind < TOPICAL, topical, ranks).astype(int)].tolist()
        for at in np.flatnonzero(kind > 1 - COMPOUND):
            words[at] += str(self._words[int(others[at])])
        ends = lengths.cumsum().tolist()
        return [" ".join(words[end - length : end]) for end, length in zip(ends, lengths.tolist(), strict=True)]

    def write(self, documents: int, file: Path) -> None:
        """Write a corpus of whole chunks as JSON lines."""
        with file.open("w") as opened:
            for number in range(documents // CHUNK):
                for at, text in enumerate(self.make(number), start=number * CHUNK):
                    opened.write(f'{{"id": "d{at}", "text": "{text}"}}\n')

    def ask(self, documents: int, count: int) -> list[str]:
        """Return questions, each of eight words of one document."""
        dice = np.random.default_rng([documents, count])
        asked = []
        for chunk in dice.integers(documents // CHUNK, size=count).tolist():
            words = self.make(chunk)[int(dice.integers(CHUNK))].split()
            asked.append(" ".join(dice.choice(words, size=8)))
        return asked


class Watch:
    """Follows the upload of a corpus in a thread: its stages, and the retriever's memory and health in each."""

    def __init__(self, running: Stack, name: str) -> None:
        self._running = running
        self._name = name
        self._ended = Event()
        self.seconds: dict[str, float] = {}
        self.processor: dict[str, dict[str, float]] = {}
        """Processor seconds of the processes in `BUSY`, by stage."""
        self.memory: dict[str, float] = {}
        """Peak of the retriever's resident memory, in GiB, by stage."""
        self.health: dict[str, float] = {}
        """Longest wait for an answer of the retriever's `/healthz`, in seconds, by stage."""
        self.orchestrator = 0.0
        """Peak of the orchestrator's resident memory, in GiB."""

    @contextmanager
    def follow(self) -> Iterator[None]:
        with ThreadPoolExecutor(1) as pool:
            polling = pool.submit(self._poll)
            try:
                yield
            finally:
                self._ended.set()
        polling.result()

    def _poll(self) -> None:
        trees = self._running.processes()
        retriever = httpx2.Client(base_url=self._running.service_url("retriever"), timeout=600, trust_env=False)
        last, used = time.perf_counter(), self._running.cpu_s()
        while not self._ended.wait(POLL_S):
            stage = find_stage(self._running.api.get(f"/v1/corpora/{self._name}"))
            asked = time.perf_counter()
            retriever.get("/healthz").raise_for_status()
            if stage not in self.seconds:
                print(f"{stage}, after {self.seconds}, {self.memory}", file=sys.stderr, flush=True)
            now, before, used = time.perf_counter(), used, self._running.cpu_s()
            spent = self.processor.setdefault(stage, dict.fromkeys(BUSY, 0.0))
            for name in BUSY:
                spent[name] += used[name] - before[name]
            self.seconds[stage] = self.seconds.get(stage, 0) + now - last
            self.health[stage] = max(self.health.get(stage, 0), now - asked)
            self.memory[stage] = max(self.memory.get(stage, 0), memory_gib(trees["retriever"][0]))
            self.orchestrator = max(self.orchestrator, memory_gib(trees["orchestrator"][0]))
            last = now


def find_stage(reply: httpx2.Response) -> str:
    """Return the stage of an upload: of the documents, or of an index that reads them or is then laid and written."""
    if reply.status_code == httpx2.codes.NOT_FOUND:
        return "upload"
    corpus = reply.raise_for_status().json()
    if not corpus["builds"]:
        return "between"
    build = corpus["builds"][0]
    return f"{build['kind']} {'written' if build['documents'] == corpus['documents'] else 'read'}"


def memory_gib(process: psutil.Process) -> float:
    return float(process.memory_info().rss / GIB)


@benchmark
def growth_corpora(
    documents: tuple[str, ...] = ("10000", "100000", "1000000"),
    compared: int = 100_000,
    figures: Path | None = None,
) -> Rows:
    """Measure upload, indexes, restart and searches of corpora of made-up passages of some 57 words.

    Graphs (HNSW) and lists (IVF) are compared with the exact search in corpora of up to `compared` documents. The
    curves are drawn in the folder `figures`. The figure is the time of the builds for a document of the largest corpus
    over that of the smallest.
    """
    texts, rows = MadeUpTexts(), list[dict[str, float]]()
    limits = {"MATHRAG_LIMITS__UPLOAD_ROWS": str(10**8), "MATHRAG_LIMITS__UPLOAD_BYTES": str(10**12)}
    for size in map(int, documents):
        with start_stack(**limits) as running:
            row, stages = measure_corpus(running, texts, size)
            rows.append(row)
            yield from stages
            for columns in (*CURVES.values(), ("orchestrator, GiB", "checked again, s", *PAGES)):
                yield {"documents": size, **{name: row[name] for name in columns}}
            if size <= compared:
                yield from compare_layouts(running, texts.ask(size, BATCH))
    if figures:
        for unit, curves in CURVES.items():
            shown = [{name: row[name] for name in ("documents", *curves)} for row in rows]
            draw_curves(f"growth-corpora-{unit.lower()}", shown, curves, figures, unit=unit)
    each = [(row["dense built, s"] + row["sparse built, s"]) / row["documents"] for row in rows]
    yield each[-1] / each[0]


def measure_corpus(running: Stack, texts: MadeUpTexts, documents: int) -> tuple[dict[str, float], Rows]:
    """Upload a corpus, restart the retriever and search; return its figures, and a row for each stage."""
    watch = Watch(running, "passages")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "corpus.jsonl"
        texts.write(documents, file)
        with watch.follow(), file.open("rb") as opened:
            pieces = iter(lambda: opened.read(1 << 20), b"")
            running.api.post("/v1/corpora", params={"name": "passages"}, content=pieces).raise_for_status()
    stages: Rows = [
        {"documents": documents, "stage": stage, "seconds": seconds,
         **{f"{name}, processor s": spent for name, spent in watch.processor[stage].items()},
         "peak of the retriever, GiB": watch.memory[stage], "slowest health, s": watch.health[stage]}
        for stage, seconds in watch.seconds.items()
    ]  # fmt: skip
    built = {kind: sum(watch.seconds.get(f"{kind} {part}", 0) for part in ("read", "written")) for kind in KINDS}
    ((database, *paths),) = running.rows(SIZES)
    disk = [sum(file.stat().st_size for file in (running.folder / path).iterdir()) / GIB for path in paths]
    ready = restart_retriever(running, texts.ask(documents, 1))
    found = {
        "documents": documents, "upload, s": watch.seconds.get("upload", POLL_S),
        **{f"{kind} built, s": seconds for kind, seconds in built.items()}, "ready again, s": ready,
        "slowest health, s": max(watch.health.values()), "database, GiB": database / GIB,
        **{f"{kind} index, GiB": size for kind, size in zip(KINDS, disk, strict=True)},
        "building, GiB": max(watch.memory.values()), "orchestrator, GiB": watch.orchestrator,
        **time_searches(running, texts.ask(documents, SINGLE + BATCH * BATCHES)),
        "serving, GiB": memory_gib(running.processes()["retriever"][0]),
        "checked again, s": time_request(running.api, "POST", "/v1/corpora/passages/indexes") / 1000,
        **{name: time_request(running.api, "GET", path) for name, path in PAGES.items()},
    }  # fmt: skip
    return found, stages


def restart_retriever(running: Stack, questions: Sequence[str]) -> float:
    """End the retriever, and return the seconds until its successor has answered a search in both indexes."""
    before = running.processes()["retriever"][0]
    began = time.perf_counter()
    before.terminate()
    while running.pid("retriever") in (None, before.pid):
        time.sleep(POLL_S)
    with open_retriever(running) as ask:
        ask(questions, KINDS)
    return time.perf_counter() - began


@contextmanager
def open_retriever(running: Stack) -> Iterator[Callable[[Sequence[str], Sequence[str]], float]]:
    """Yield a function that sends questions to indexes of these kinds in one request, and returns the milliseconds."""
    indexes = dict(zip(KINDS, running.rows(INDEXES)[0], strict=True))
    key = {"Authorization": f"Bearer {running.service_key()}"}
    with httpx2.Client(base_url=running.service_url("retriever"), timeout=1800, trust_env=False, headers=key) as client:

        def ask(questions: Sequence[str], kinds: Sequence[str]) -> float:
            searches = [{"index": indexes[kind], "question": each, "k": K} for each in questions for kind in kinds]
            return time_request(client, "POST", "/search", content=msgspec.json.encode({"searches": searches}))

        yield ask


def time_request(client: httpx2.Client, method: str, path: str, content: bytes = b"") -> float:
    """Return the milliseconds of a successful request."""
    began = time.perf_counter()
    client.request(method, path, content=content, headers=JSON if content else {}).raise_for_status()
    return 1000 * (time.perf_counter() - began)


def time_searches(running: Stack, questions: Sequence[str]) -> dict[str, float]:
    """Return the median milliseconds of a search, alone and in a batch, by kind; no question is asked twice."""
    found = {}
    with open_retriever(running) as ask:
        for kind in KINDS:
            found[f"{kind}, ms"] = median(ask([question], [kind]) for question in questions[:SINGLE])
            batches = (questions[at : at + BATCH] for at in range(SINGLE, len(questions), BATCH))
            found[f"{kind} of a batch, ms"] = median(ask(batch, [kind]) / BATCH for batch in batches)
    return found


def compare_layouts(running: Stack, questions: Sequence[str]) -> Rows:
    """Lay the vectors of the exact index again: seconds of the build, milliseconds of a search alone, and recall."""
    embedder = StaticEmbedder(EMBEDDINGS)
    ((_, path, _),) = running.rows(SIZES)
    stored = faiss.read_index(str(running.folder / path / VECTORS_FILE))
    vectors, asked = stored.reconstruct_n(0, stored.ntotal), embedder.embed_queries(questions)
    del stored
    documents, exact = [str(at) for at in range(len(vectors))], list[set[str]]()
    for name, layout in LAYOUTS.items():
        began = time.perf_counter()
        index = FaissIndex(layout.lay(vectors), documents, embedder, layout)
        built = time.perf_counter() - began
        began = time.perf_counter()
        near = [{match.document for match in index.search_vectors(each[np.newaxis], K)[0]} for each in asked]
        searched = 1000 * (time.perf_counter() - began) / len(asked)
        exact = exact or near
        recall = sum(len(a & b) for a, b in zip(near, exact, strict=True)) / sum(map(len, exact))
        yield {
            "documents": len(vectors), "layout": name, "built, s": built, "search, ms": searched, f"recall@{K}": recall
        }  # fmt: skip
