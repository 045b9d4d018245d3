"""Retrieval: quality of the shipped indexes, layouts of vectors, the service against the libraries, and a GPU."""

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import bm25s
import faiss
import httpx2
import ir_measures
import msgspec
import numpy as np
from ir_measures import ScoredDoc, nDCG

from mathrag.reading.lines import EmptyText
from mathrag.reading.paths import corpus_lines, dataset_lines
from services.retriever import index as index_module
from services.retriever.builds import FOLDER, make_indexed_text
from services.retriever.index import (
    K1,
    METHOD,
    B,
    Backend,
    Bm25,
    Faiss,
    Flat,
    GpuFlat,
    Hnsw,
    IndexMatch,
    Ivf,
    SearchIndex,
    VectorLayout,
    Vectors,
    make_flat,
)  # fmt: skip
from shared.ingest.datasets import read_corpus_line, read_dataset, read_dataset_line
from shared.models.embedding import StaticEmbedder
from shared.params import Params
from shared.rag.fusion import rrf
from shared.replies import Retrieved
from shared.samples import DatasetItem
from shared.settings import MODELS, Dense
from tools.bench import Rows, benchmark, in_turn
from tools.bench.stack import MATH, Stack, start_stack

MEASURE = nDCG @ 10
DEPTH = 100
K = 10
CHUNK = 128
"""Questions per request; with two searches each they fill the 256 that the service accepts."""
DENSE = Dense()
"""The defaults."""
LAYOUTS: dict[str, VectorLayout] = {
    "flat": Flat(),
    "hnsw": Hnsw(DENSE.neighbours, DENSE.build, DENSE.search),
    "ivf": Ivf(DENSE.lists, DENSE.probes),
    "ivf, 64 probes": Ivf(DENSE.lists, 64),
}
DIMENSION, GPU_K = 256, 26
"""Size of the shipped embedder's vectors; a search for ten documents asks FAISS for 26
(`services.retriever.index.MARGIN`)."""
JSON = {"content-type": "application/json"}
_REPLIES = msgspec.json.Decoder(list[Retrieved])

Run = dict[str, list[IndexMatch]]
"""Query id -> matches, best first."""
Search = Callable[[Sequence[str]], object]


@benchmark
def retrieval(folder: Path, embeddings: Path = MODELS / "static-embeddings") -> Rows:
    """Measure nDCG@10 (ir-measures with trec_eval) of dense, BM25 and their reciprocal rank fusion on a BEIR folder."""
    questions, judged = read_questions(folder)
    runs: dict[str, Run] = {}
    backends: dict[str, Backend[SearchIndex]] = {"bm25": Bm25(), "dense": Faiss(StaticEmbedder(embeddings))}
    seconds: dict[str, list[float]] = {}
    for name, backend in backends.items():
        runs[name], *seconds[name] = run(backend, documents(folder), questions)
    runs["rrf"] = fuse(list(runs.values()))
    figures = {name: ndcg(found, judged) for name, found in runs.items()}
    for name, figure in figures.items():
        built, searched = seconds.get(name, [None, None])
        yield {
            "index": name, str(MEASURE): f"{figure:.4f}", "over bm25": f"{figure / figures['bm25']:.3f}",
            "build, s": built, f"{len(questions)} questions, s": searched,
        }  # fmt: skip


def documents(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (id, indexed text) of a BEIR corpus; documents without text are left out, because no query finds them."""
    for source, line, raw in corpus_lines(folder):
        try:
            record = read_corpus_line(raw, source, line)
        except EmptyText:
            continue
        yield record.external_id or str(line), make_indexed_text(record.document.problem, record.document.text)


def run(
    backend: Backend[SearchIndex], texts: Iterable[tuple[str, str]], questions: dict[str, str]
) -> tuple[Run, float, float]:
    """Search all questions in an index; return (run, seconds to build, seconds to search)."""
    started = time.perf_counter()
    index = backend.build(iter([list(texts)]))
    built = time.perf_counter()
    found = index.search(list(questions.values()), DEPTH)
    return dict(zip(questions, found, strict=True)), built - started, time.perf_counter() - built


def fuse(runs: list[Run]) -> Run:
    """Fuse runs by reciprocal rank, 1 / (60 + rank) with ranks from 1."""
    lists = {query: [[match.document for match in each[query]] for each in runs] for query in runs[0]}
    return {query: [IndexMatch(*pair) for pair in rrf(ranked)] for query, ranked in lists.items()}


def ndcg(found: Run, judged: dict[str, dict[str, int]]) -> float:
    scored = (ScoredDoc(query, match.document, match.score) for query, matches in found.items() for match in matches)
    return float(ir_measures.calc_aggregate([MEASURE], judged, scored)[MEASURE])


def read_questions(folder: Path) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Read query id -> question, and query id -> {document id -> grade}, of a BEIR folder's test split."""
    items = {item.custom_id or "": item for item in read_dataset(dataset_lines(folder))}
    questions = {query: item.question for query, item in items.items()}
    return questions, {query: item.gold_documents or {} for query, item in items.items()}


@benchmark
def layouts(folder: Path, questions: int = 1000) -> Rows:
    """Measure recall@10 of graphs and lists against the exact search, and their cost.

    FOLDER has train.jsonl, whose problems are the documents, and test-dev.jsonl, whose problems are the questions.
    """
    texts, asked = read_math(folder, questions)
    found = list({text: (str(number), text) for number, text in enumerate(texts)}.values())
    embedder = StaticEmbedder(MODELS / "static-embeddings")
    vectors = embedder.embed_queries(asked)
    exact: list[set[str]] = []
    for name, layout in LAYOUTS.items():
        started = time.perf_counter()
        index = Faiss(embedder, layout).build([found])
        built = time.perf_counter()
        matches = index.search_vectors(vectors, K)
        searched = time.perf_counter()
        near = [{match.document for match in each} for each in matches]
        exact = exact or near
        recall = sum(len(a & b) for a, b in zip(near, exact, strict=True)) / sum(map(len, exact))
        yield {"layout": name, f"recall@{K}": recall, "build, s": built - started, "search, s": searched - built}


def read_math(folder: Path, questions: int) -> tuple[list[str], list[str]]:
    """Return the indexed texts of MATH's training problems, and questions of its test-dev part."""
    read = [read_corpus_line(line, "", 0).document for line in (folder / "train.jsonl").read_bytes().splitlines()]
    texts = [make_indexed_text(document.problem, document.text) for document in read]
    return texts, [item.question for item in read_items(folder, questions)]


def read_items(folder: Path, most: int) -> list[DatasetItem]:
    """Return the first items of MATH's test-dev part."""
    lines = (folder / "test-dev.jsonl").read_bytes().splitlines()[:most]
    return [read_dataset_line(line, "", 0) for line in lines]


@benchmark
def search(data: Path = MATH, questions: int = 1000, rounds: int = 5) -> Rows:
    """Compare hybrid retrieval through the retriever service with the libraries alone.

    The floor is the sum of raw bm25s (tokens, scores, top k), the embedding of the questions, and FAISS, in this
    process. The service is called as a worker calls it: dense and sparse searches, near-duplicates of each question
    dropped, and both lists fused. `data` is a folder with train.jsonl and test-dev.jsonl.
    """
    if not (data / "train.jsonl").exists():
        yield f"not measured: {data} has no train.jsonl; name the folder of MATH with --data"
        return
    texts, asked = read_math(data, questions)
    items = read_items(data, questions)
    raw = search_raw(texts)
    with start_stack(MATHRAG_RETRIEVAL__EMBEDDINGS__CACHE="0") as running:  # every round asks the same questions
        running.upload("corpora", "math", [(data / "train.jsonl").read_bytes()])
        service = search_service(running)
        sides = {"libraries": lambda: raw(asked), "service": lambda: service(items)}
        ratios = yield from in_turn(sides, rounds, warm=1)
        yield ratios["service"]


@benchmark
def index(data: Path = MATH, rounds: int = 3) -> Rows:
    """Compare building a stored corpus's two indexes with the libraries alone, which have the texts in memory.

    The service reads the documents from the database, and writes and registers the indexes. `data` is a folder with
    train.jsonl and test-dev.jsonl.
    """
    if not (data / "train.jsonl").exists():
        yield f"not measured: {data} has no train.jsonl; name the folder of MATH with --data"
        return
    texts, _ = read_math(data, 0)
    with start_stack() as running:
        running.upload("corpora", "math", [(data / "train.jsonl").read_bytes()])

        def build() -> None:
            shutil.rmtree(running.folder / FOLDER)  # so that they are built again
            built = running.api.post("/v1/corpora/math/indexes").raise_for_status().json()
            if any(each["reused"] for each in built["indexes"]):
                raise SystemExit("an index was not built again")

        ratios = yield from in_turn({"libraries": lambda: search_raw(texts), "service": build}, rounds, warm=1)
        yield ratios["service"]


def search_raw(texts: Sequence[str]) -> Search:
    """Make a search by the libraries alone, over the same texts, tokens and vectors."""
    scorer = bm25s.BM25(method=METHOD, k1=K1, b=B)
    scorer.index([index_module.tokenise(text) for text in texts], show_progress=False)
    embedder = StaticEmbedder(MODELS / "static-embeddings")
    index = faiss.IndexFlatIP(embedder.dimension)
    index.add(embedder.embed_documents(texts))

    def search(questions: Sequence[str]) -> object:
        asked = [index_module.tokenise(question) for question in questions]
        return scorer.retrieve(asked, k=K, show_progress=False), index.search(embedder.embed_queries(questions), K)

    return search


def search_service(running: Stack) -> Callable[[Sequence[DatasetItem]], object]:
    """Make a search by the retriever of a running stack, called as a worker calls it."""
    ((dense, sparse),) = running.rows("SELECT dense_index, sparse_index FROM corpora WHERE name = 'math'")
    key = {"Authorization": f"Bearer {running.service_key()}"}
    client = httpx2.Client(base_url=running.service_url("retriever"), timeout=60, trust_env=False, headers=key)
    rule = Params().duplicates

    def search(items: Sequence[DatasetItem]) -> object:
        return [fused for at in range(0, len(items), CHUNK) for fused in ask(items[at : at + CHUNK])]

    def ask(items: Sequence[DatasetItem]) -> list[list[tuple[str, float]]]:
        searches = [
            {"index": index, "question": each.question, "k": K, "duplicates": rule, "gold": each.gold or ""}
            for each in items
            for index in (dense, sparse)
        ]
        reply = client.post("/search", content=msgspec.json.encode({"searches": searches}), headers=JSON)
        found = [[hit.document for hit in each.hits] for each in _REPLIES.decode(reply.raise_for_status().content)]
        return [rrf([*pair]) for pair in zip(found[::2], found[1::2], strict=True)]

    return search


@benchmark
def search_gpu(vectors: int = 500_000, rounds: int = 9) -> Rows:
    """Compare FAISS's exact search on the first GPU with the same search on the processor.

    Vectors and questions are random. Both find the same documents, or it says so.
    """
    layout = make_flat("auto", 8192)
    if not isinstance(layout, GpuFlat):
        raise SystemExit(f"nothing is measured here: FAISS {faiss.__version__} sees no GPU")
    index = layout.lay(make_vectors(vectors, 0))
    sides = {"GPU": layout.finder(index), "processor": Flat().finder(index)}
    yield f"{faiss.omp_get_max_threads()} threads; in the GPU's memory {layout.used_mib:.0f} MiB"
    for count in (1, 16, 256):
        asked = make_vectors(count, 1)
        pairs = zip(*(near(asked, GPU_K) for near in sides.values()), strict=True)
        same = np.mean([set(a) == set(b) for a, b in pairs])
        runs: dict[str, Callable[[], object]] = {name: partial(near, asked, GPU_K) for name, near in sides.items()}
        for row in in_turn(runs, rounds):
            yield {"questions": count, **row, "same documents": f"{same:.1%}"}


def make_vectors(count: int, seed: int) -> Vectors:
    vectors = np.random.default_rng(seed).standard_normal((count, DIMENSION), dtype=np.float32)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
