"""Mining of rules: time and memory by the size of a graph; and random graphs like real ones.

Random graphs have kinds of entities, hubs, few large and many small relations.
"""

import multiprocessing
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from shared.calls import Amie
from shared.rules.graph import Graph
from shared.rules.miners import memory_bytes, mine
from tools.bench import Rows, benchmark

FB15K_237 = (272_115, 14_541, 237)
"""Triples, entities and relations of FB15K-237's training part (Toutanova and Chen 2015)."""
SMALLEST, LARGEST = 37, 16_000
"""Facts of its smallest and largest relations."""
KINDS = 3
DERIVED = 0.7
"""Share of the relations that derive half of their facts from others: same pairs, inverses, or chains of two."""

PROCESSES = 2
SIZES = (17_000, 34_000, 68_000, 136_000)
MIB = 1 << 20

Pairs = NDArray[np.int64]
"""(facts, 2): subjects and objects."""

_graphs: list[Graph] = []
"""The graph of a worker process."""


class MiningCost(NamedTuple):
    """Number of rules, time and memory of mining a relation or a graph."""

    rules: int
    seconds: float
    peak_bytes: int


@benchmark
def mining(file: Path | None = None, *, large: bool = False) -> Rows:
    """Measure how time and memory of mining rules grow with the triples of a graph.

    Two processes mine one relation at a time with AMIE's defaults: random graphs of four sizes, with `--large` also one
    of FB15K-237's size, or a TSV of subjects, relations and objects. The first ratio is the processor time per triple
    over that of the smallest graph, the second the processor time over a floor of the same run: plain Python that files
    each fact under its subject and its object. Processor time is that of all relations together, seconds are those of
    the wall clock with the start of the processes, and the peak is that of the larger process with its interpreter.
    """
    sizes = (*SIZES, FB15K_237[0]) if large else SIZES
    smallest = 0.0
    # Random graphs have FB15K-237's relations and its ratio of triples to entities.
    random = (make_graph(size, FB15K_237[1] * size // FB15K_237[0], FB15K_237[2]) for size in sizes)
    for graph in [read_graph(file)] if file else random:
        started = time.monotonic()
        mined = mine_all(graph)
        wall, a_triple = time.monotonic() - started, mined.seconds / len(graph.triples)
        smallest = smallest or a_triple
        shape = len(graph.triples), len(graph.entities), len(graph.relations)
        yield {
            "triples": shape[0], "rules": mined.rules, "over smallest": a_triple / smallest,
            "over floor": mined.seconds / time_floor(graph), "processor s": mined.seconds, "seconds": wall,
            "peak MiB": mined.peak_bytes / MIB, "estimated MiB": memory_bytes(*shape, Amie()) / MIB,
        }  # fmt: skip


def read_graph(file: Path) -> Graph:
    """Read the facts of a TSV without a header."""
    facts = [line.split("\t")[:3] for line in file.read_text().splitlines()]
    entities, entity_numbers = np.unique([(fact[0], fact[2]) for fact in facts], return_inverse=True)
    relations, numbers = np.unique([fact[1] for fact in facts], return_inverse=True)
    triples = np.insert(entity_numbers.reshape(-1, 2), 1, numbers, axis=1).astype(np.int32)
    return Graph(triples, None, entities.tolist(), relations.tolist())


def mine_all(graph: Graph) -> MiningCost:
    """Mine all relations, the largest first, in two new processes."""
    facts = np.bincount(graph.triples[:, 1])
    relations = [graph.relations[number] for number in np.argsort(-facts)]
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, fresh, receive_graph, (graph,)) as pool:
        parts = list(pool.map(mine_one, relations))
    rules, seconds, peaks = zip(*parts, strict=True)
    return MiningCost(sum(rules), sum(seconds), max(peaks))


def receive_graph(graph: Graph) -> None:
    _graphs.append(graph)


def mine_one(relation: str) -> MiningCost:
    started = time.process_time()
    rules = mine(_graphs[0], relation, Amie())
    return MiningCost(len(rules), time.process_time() - started, peak_bytes())


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


def make_graph(triples: int, entities: int, relations: int, seed: int = 0) -> Graph:
    """Make a graph of nearly this number of distinct triples, the same for the same seed."""
    random = np.random.default_rng(seed)
    kinds = np.split(random.permutation(entities), (np.cumsum(_shares(KINDS, 1.5))[:-1] * entities).astype(int))
    made: list[Pairs] = []
    # Facts by relation, a power law within the bounds, scaled so that the sum is nearest to `triples`.
    scales = np.geomspace(0.05, 20, 500) * triples
    sizes = np.clip(np.outer(scales, _shares(relations, 1.1)), SMALLEST, LARGEST).astype(np.int64)
    for facts in random.permutation(np.asarray(sizes[np.argmin(np.abs(sizes.sum(axis=1) - triples))])):
        # Between two kinds; a few entities of each have most of the facts.
        ends = []
        for kind in random.choice(len(kinds), 2, p=_shares(len(kinds), 0.5)):
            power = random.uniform(0.2, 1.2)
            ends.append(random.choice(kinds[kind], 2 * facts, p=_shares(len(kinds[kind]), power)))
        drawn = np.stack(ends, axis=1)
        if made and random.random() < DERIVED:
            drawn = np.concatenate([random.permutation(_derive(random, made))[: facts // 2], drawn])
        _, first = np.unique(drawn @ (entities, 1), return_index=True)
        made.append(drawn[np.sort(first)[:facts]])
    parts = [np.insert(pairs, 1, number, axis=1) for number, pairs in enumerate(made)]
    names = tuple(f"e{n}" for n in range(entities)), tuple(f"r{n}" for n in range(relations))
    return Graph(np.concatenate(parts).astype(np.int32), None, *names)


def _shares(count: int, power: float) -> NDArray[np.float64]:
    """Return shares by rank that follow a power law and sum to 1."""
    weights = np.arange(1, count + 1) ** -power
    return np.asarray(weights / weights.sum())


def _derive(random: Generator, made: list[Pairs]) -> Pairs:
    """Derive pairs from earlier relations."""
    one, other = (made[number] for number in random.integers(len(made), size=2))
    match random.integers(3):
        case 0:
            return np.asarray(one)
        case 1:
            return np.asarray(one[:, ::-1])
        case _:
            # Join pairs by a fact of each; if several second facts fit, the first is used.
            other = other[np.argsort(other[:, 0], kind="stable")]
            places = np.minimum(np.searchsorted(other[:, 0], one[:, 1]), len(other) - 1)
            met = other[places, 0] == one[:, 1]
            return np.stack([one[met, 0], other[places[met], 1]], axis=1)
