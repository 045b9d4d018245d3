"""Measure the retrieval quality of the shipped indexes: `python -m bench.retrieval ../shared/data/cranfield`.

Prints nDCG@10 (ir-measures with trec_eval) of dense, BM25 and their reciprocal rank fusion on a BEIR folder.
"""

import argparse
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import ir_measures
from ir_measures import ScoredDoc, nDCG

from services.retriever.builds import make_indexed_text
from services.retriever.index import Backend, Batch, Bm25, Faiss, IndexMatch, SearchIndex
from shared import settings
from shared.ingest.datasets import read_corpus_line, read_dataset
from shared.ingest.lines import EmptyText
from shared.ingest.paths import corpus_lines, dataset_lines
from shared.models.embedding import StaticEmbedder
from shared.rag.fusion import rrf

MEASURE = nDCG @ 10
DEPTH = 100

Run = dict[str, list[IndexMatch]]
"""Query id -> matches, best first."""


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
    index = backend.build(_batches(texts))
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


def _batches(texts: Iterable[tuple[str, str]]) -> Iterator[Batch]:
    yield list(texts)


def read_questions(folder: Path) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
    """Read query id -> question, and query id -> {document id -> grade}, of a BEIR folder's test split."""
    items = {item.custom_id or "": item for item in read_dataset(dataset_lines(folder))}
    questions = {query: item.question for query, item in items.items()}
    return questions, {query: item.gold_documents or {} for query, item in items.items()}


def main() -> None:
    """Search by every index, and print times and nDCG@10."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a BEIR folder with corpus.jsonl, queries.jsonl, qrels/test.tsv")
    parser.add_argument("--embeddings", type=Path, default=settings.load().retrieval.embeddings.path)
    arguments = parser.parse_args()
    questions, judged = read_questions(arguments.folder)
    runs: dict[str, Run] = {}
    backends: dict[str, Backend[SearchIndex]] = {"bm25": Bm25(), "dense": Faiss(StaticEmbedder(arguments.embeddings))}
    for name, backend in backends.items():
        runs[name], build, search = run(backend, documents(arguments.folder), questions)
        print(f"{name:6} built in {build:.2f} s, {len(questions)} questions in {search:.3f} s")
    runs["rrf"] = fuse(list(runs.values()))
    figures = {name: ndcg(found, judged) for name, found in runs.items()}
    print("  ".join(f"{name} {MEASURE} {figure:.4f}" for name, figure in figures.items()))
    print(f"dense/bm25 {figures['dense'] / figures['bm25']:.3f}  rrf/bm25 {figures['rrf'] / figures['bm25']:.3f}")


if __name__ == "__main__":
    main()
