"""Measure hybrid retrieval through the retriever service against the libraries alone.

    .venv/bin/python -m bench.search ../shared/data/math

The floor is the sum of raw bm25s (tokens, scores, top k), the embedding of the questions, and FAISS, in this process.
The system is the service over HTTP: dense and sparse searches as a worker sends them, near-duplicates of each
question dropped, and both lists fused. Floor and system alternate.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

import bm25s
import faiss
import httpx2
import msgspec
from sqlalchemy import text

from bench.running import Stack, stack
from services.retriever import index as index_module
from services.retriever.builds import make_indexed_text
from services.retriever.index import K1, METHOD, B
from shared.ingest.datasets import read_corpus_line, read_dataset_line
from shared.models.embedding import StaticEmbedder
from shared.rag.fusion import rrf
from shared.replies import Retrieved
from shared.settings import Settings
from shared.storage.database import Database

K = 10
CHUNK = 128
"""Questions per request; with two searches each they fill the 256 that the service accepts."""
INDEXES = text("SELECT dense_index, sparse_index FROM corpora WHERE name = 'math'")
_REPLIES = msgspec.json.Decoder(list[Retrieved])


def main() -> None:
    """Run floor and system in turn, print every figure, then the ratio of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder with train.jsonl and test-dev.jsonl")
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    corpus = (options.folder / "train.jsonl").read_bytes()
    lines = (options.folder / "test-dev.jsonl").read_bytes().splitlines()[: options.questions]
    questions = [read_dataset_line(line, "", 0).question for line in lines]
    floor = raw(corpus.splitlines())
    with stack(MATHRAG_RETRIEVAL__EMBEDDINGS__CACHE="0") as running:  # every round asks the same questions
        running.upload("corpora", "math", [corpus])
        system = service(running)
        system(questions), floor(questions)
        ratio(floor, system, questions, options.rounds)


def ratio(floor: "Search", system: "Search", questions: Sequence[str], rounds: int) -> None:
    """Time both in turn, and print the ratio."""
    floors, systems = [], []
    for number in range(1, rounds + 1):
        floors.append(seconds(floor, questions))
        systems.append(seconds(system, questions))
        print(f"round {number}: floor {floors[-1]:.3f} s, system {systems[-1]:.3f} s", flush=True)
    print(f"{len(questions)} questions, ratio of the medians: {median(systems) / median(floors):.3f}")


Search = Callable[[Sequence[str]], object]


def seconds(search: Search, questions: Sequence[str]) -> float:
    """Return the seconds of one pass."""
    began = time.perf_counter()
    search(questions)
    return time.perf_counter() - began


def raw(lines: Sequence[bytes]) -> Search:
    """Make a search by the libraries alone, over the same texts, tokens and vectors."""
    documents = [read_corpus_line(line, "", 0).document for line in lines]
    texts = [make_indexed_text(document.problem, document.text) for document in documents]
    scorer = bm25s.BM25(method=METHOD, k1=K1, b=B)
    scorer.index([index_module.tokenise(text) for text in texts], show_progress=False)
    embedder = StaticEmbedder(Settings().retrieval.embeddings.path)
    index = faiss.IndexFlatIP(embedder.dimension)
    index.add(embedder.embed_documents(texts))

    def search(questions: Sequence[str]) -> object:
        asked = [index_module.tokenise(question) for question in questions]
        return scorer.retrieve(asked, k=K, show_progress=False), index.search(embedder.embed_queries(questions), K)

    return search


def service(running: Stack) -> Search:
    """Make a search by the retriever of a running stack, called as a worker calls it."""
    dense, sparse = asyncio.run(indexes(running))
    key = {"Authorization": f"Bearer {running.service_key()}"}
    client = httpx2.Client(base_url=running.service_url("retriever"), timeout=60, trust_env=False, headers=key)

    def search(questions: Sequence[str]) -> object:
        return [fused for at in range(0, len(questions), CHUNK) for fused in ask(questions[at : at + CHUNK])]

    def ask(questions: Sequence[str]) -> list[list[tuple[str, float]]]:
        searches = [{"index": index, "question": each, "k": K} for each in questions for index in (dense, sparse)]
        reply = client.post("/search", content=msgspec.json.encode({"searches": searches}), headers=JSON)
        found = [[hit.document for hit in each.hits] for each in _REPLIES.decode(reply.raise_for_status().content)]
        return [rrf([*pair]) for pair in zip(found[::2], found[1::2], strict=True)]

    return search


JSON = {"content-type": "application/json"}


async def indexes(running: Stack) -> tuple[int, int]:
    """Read the ids of the corpus's dense and sparse indexes."""
    database = Database(running.database_url(), pinned=False)
    async with database.statement() as connection:
        dense, sparse = (await connection.execute(INDEXES)).one()
    await database.close()
    return dense, sparse


if __name__ == "__main__":
    main()
