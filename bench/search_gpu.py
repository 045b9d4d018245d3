"""Compare FAISS's exact search on the first GPU with the same search on the processor.

    .venv/bin/python -m bench.search_gpu --vectors 500000

Vectors and questions are random, of the shipped embedder's size. Both find the same documents, or it says so.
"""

import argparse
import time
from statistics import median

import faiss
import numpy as np

from services.retriever.index import Flat, GpuFlat, Near, Vectors, make_flat

DIMENSION, K = 256, 26
"""A search for ten documents asks FAISS for 26 (`services.retriever.index.MARGIN`)."""


def main() -> None:
    """Time both by turns for one question and for batches, and print the ratios of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    layout = make_flat("auto", 8192)
    if not isinstance(layout, GpuFlat):
        raise SystemExit(f"nothing is measured here: FAISS {faiss.__version__} sees no GPU")
    vectors = make_vectors(options.vectors, 0)
    index = layout.lay(vectors)
    on_cpu, on_gpu = Flat().finder(index), layout.finder(index)
    threads = faiss.omp_get_max_threads()
    print(f"{options.vectors} vectors of {DIMENSION}; {threads} threads; in the GPU's memory {layout.used_mib:.0f} MiB")
    print("| questions | processor, ms | GPU, ms | processor over GPU | same documents |\n|---|---|---|---|---|")
    for count in (1, 16, 256):
        questions = make_vectors(count, 1)
        same = np.mean([set(a) == set(b) for a, b in zip(on_cpu(questions, K), on_gpu(questions, K), strict=True)])
        times = [(measure_ms(on_cpu, questions), measure_ms(on_gpu, questions)) for _ in range(options.rounds)]
        cpu, gpu = (median(each) for each in zip(*times, strict=True))
        print(f"| {count} | {cpu:.2f} | {gpu:.2f} | {cpu / gpu:.1f} | {same:.1%} |", flush=True)


def make_vectors(count: int, seed: int) -> Vectors:
    """Return random vectors of length 1."""
    vectors = np.random.default_rng(seed).standard_normal((count, DIMENSION), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def measure_ms(near: Near, questions: Vectors) -> float:
    """Return the milliseconds of one search."""
    began = time.perf_counter()
    near(questions, K)
    return 1000 * (time.perf_counter() - began)


if __name__ == "__main__":
    main()
