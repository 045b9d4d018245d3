"""Measure how time and memory of mining rules grow with the triples of a graph.

    .venv/bin/python -m bench.mining            # random graphs of four sizes
    .venv/bin/python -m bench.mining --large    # and one of FB15K-237's size
    .venv/bin/python -m bench.mining --file ../shared/data/kg/kinship/train.tsv

Two processes mine one relation at a time with AMIE's defaults. The first ratio is the processor time per triple over
that of the smallest graph, the second the processor time over a floor of the same run: plain Python that files each
fact under its subject and its object. Processor time is that of all relations together, seconds are those of the wall
clock with the start of the processes, and the peak is that of the larger process with its interpreter.
"""

import argparse
import multiprocessing
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np

from bench.graphs import FB15K_237, make_graph
from shared.calls import Amie
from shared.rules.graph import Graph
from shared.rules.miners import memory_bytes, mine

PROCESSES = 2
SIZES = (17_000, 34_000, 68_000, 136_000)
MIB = 1 << 20

_graphs: list[Graph] = []
"""The graph of a worker process."""


class Mined(NamedTuple):
    """Number of rules, time and memory of mining a relation or a graph."""

    rules: int
    seconds: float
    peak_bytes: int


def main() -> None:
    """Print a line for each size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="mine a graph of FB15K-237's size as well")
    parser.add_argument("--file", type=Path, help="mine a TSV of subjects, relations and objects instead")
    options = parser.parse_args()
    sizes = (*SIZES, FB15K_237[0]) if options.large else SIZES
    print(" triples   rules  / smallest   / floor  processor s  seconds  peak MiB  estimated MiB")
    smallest = None
    for graph in [read_graph(options.file)] if options.file else map(make_graph_of_size, sizes):
        started = time.monotonic()
        mined = mine_all(graph)
        wall, a_triple = time.monotonic() - started, mined.seconds / len(graph.triples)
        smallest = smallest or a_triple
        print_line(graph, mined, wall, a_triple / smallest)


def make_graph_of_size(triples: int) -> Graph:
    """Make a graph with FB15K-237's relations and its ratio of triples to entities."""
    return make_graph(triples, FB15K_237[1] * triples // FB15K_237[0], FB15K_237[2])


def read_graph(file: Path) -> Graph:
    """Read the facts of a TSV without a header."""
    facts = [line.split("\t")[:3] for line in file.read_text().splitlines()]
    entities, entity_numbers = np.unique([(fact[0], fact[2]) for fact in facts], return_inverse=True)
    relations, numbers = np.unique([fact[1] for fact in facts], return_inverse=True)
    triples = np.insert(entity_numbers.reshape(-1, 2), 1, numbers, axis=1).astype(np.int32)
    return Graph(triples, None, entities.tolist(), relations.tolist())


def print_line(graph: Graph, mined: Mined, wall: float, growth: float) -> None:
    """The columns of the heading: ratios, then what they are made of."""
    shape = len(graph.triples), len(graph.entities), len(graph.relations)
    estimate = memory_bytes(*shape, Amie())
    line = f"{shape[0]:>8,} {mined.rules:>7,} {growth:>11.2f} {mined.seconds / time_floor(graph):>9,.0f}"
    line += f" {mined.seconds:>12.1f} {wall:>8.1f} {mined.peak_bytes / MIB:>9.0f} {estimate / MIB:>14.0f}"
    print(line, flush=True)


def mine_all(graph: Graph) -> Mined:
    """Mine all relations, the largest first, in two new processes."""
    facts = np.bincount(graph.triples[:, 1])
    relations = [graph.relations[number] for number in np.argsort(-facts)]
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, fresh, receive_graph, (graph,)) as pool:
        parts = list(pool.map(mine_one, relations))
    rules, seconds, peaks = zip(*parts, strict=True)
    return Mined(sum(rules), sum(seconds), max(peaks))


def receive_graph(graph: Graph) -> None:
    """Keep the graph in the worker process."""
    _graphs.append(graph)


def mine_one(relation: str) -> Mined:
    """Mine a relation in a worker process."""
    started = time.process_time()
    rules = mine(_graphs[0], relation, Amie())
    return Mined(len(rules), time.process_time() - started, peak_bytes())


def peak_bytes() -> int:
    """Return the peak of this process's resident memory."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) * 1024


def time_floor(graph: Graph) -> float:
    """File the facts by entity five times; return the median of the processor seconds."""
    facts, seconds = graph.triples.tolist(), []
    for _ in range(5):
        started = time.process_time()
        filed = defaultdict(list)
        for subject, relation, object_ in facts:
            filed[subject].append((relation, object_))
            filed[object_].append((relation, subject))
        seconds.append(time.process_time() - started)
    return median(seconds)


if __name__ == "__main__":
    main()
