"""What graphs and lists find of what there is, and what they cost: `python -m bench.layouts ../shared/data/math`.

The training problems are the documents, those of test-dev the questions; recall@10 against the exact search.
"""

import argparse
import time
from pathlib import Path

from services.retriever.builds import make_indexed_text
from services.retriever.index import Faiss, Flat, Hnsw, Ivf, VectorLayout
from shared.ingest.datasets import read_corpus_line, read_dataset_line
from shared.models.embedding import StaticEmbedder
from shared.settings import MODELS, Dense

K = 10
DENSE = Dense()
"""The defaults."""

LAYOUTS: dict[str, VectorLayout] = {
    "flat": Flat(),
    "hnsw": Hnsw(DENSE.neighbours, DENSE.build, DENSE.search),
    "ivf": Ivf(DENSE.lists, DENSE.probes),
    "ivf, 64 probes": Ivf(DENSE.lists, 64),
}


def main() -> None:
    """Print a line for each layout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a folder with train.jsonl and test-dev.jsonl")
    parser.add_argument("--questions", type=int, default=1000)
    options = parser.parse_args()
    documents = _documents((options.folder / "train.jsonl").read_bytes().splitlines())
    lines = (options.folder / "test-dev.jsonl").read_bytes().splitlines()[: options.questions]
    questions = [read_dataset_line(line, "", 0).question for line in lines]
    embedder = StaticEmbedder(MODELS / "static-embeddings")
    vectors = embedder.embed_queries(questions)
    exact: list[set[str]] = []
    print(f"{len(documents)} documents, {len(questions)} questions\nlayout | recall@{K} | build s | search s")
    for name, layout in LAYOUTS.items():
        started = time.perf_counter()
        index = Faiss(embedder, layout).build([documents])
        built = time.perf_counter()
        matches = index.search_vectors(vectors, K)
        searched = time.perf_counter()
        found = [{match.document for match in each} for each in matches]
        exact = exact or found
        recall = sum(len(a & b) for a, b in zip(found, exact, strict=True)) / sum(map(len, exact))
        print(f"{name} | {recall:.4f} | {built - started:.1f} | {searched - built:.2f}")


def _documents(lines: list[bytes]) -> list[tuple[str, str]]:
    read = (read_corpus_line(line, "", at).document for at, line in enumerate(lines))
    return list({document.hash: make_indexed_text(document.problem, document.text) for document in read}.items())


if __name__ == "__main__":
    main()
