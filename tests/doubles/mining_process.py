"""The process of a mining pool with a miner of its own: what it finds, or does instead, stands in the relation's name.

A relation called `likes 3` has three rules; the others do what they are called.
"""

import sys
from itertools import count

import numpy as np

from services.judge import mining_process
from shared.calls import Mining
from shared.processes.children import serve
from shared.replies import Atom, Rule
from shared.rules import miners
from shared.rules.graph import Graph


def mine(graph: Graph, relation: str, mining: Mining) -> tuple[Rule, ...]:
    """Rules that tell the graph and the limits apart."""
    match relation:
        case "out of memory":
            raise MemoryError
        case "takes 4 GiB":
            np.ones(4 << 30, np.uint8)
        case "refused":
            raise ValueError("the graph has no such relation")
        case "ends":
            sys.exit(3)
        case "computes for ever":
            sum(count())
    rules = int(relation.rpartition(" ")[2])
    head, body = Atom(relation, 0, 1), (Atom(graph.relations[0], 0, 1),)
    support = len(graph.triples) + mining.min_head_facts
    return tuple(
        Rule(head=head, body=body, support=support, body_size=2 * support, confidence=0.5, pca_confidence=n / rules)
        for n in range(rules)
    )


if __name__ == "__main__":
    miners.mine = mine
    serve(int(sys.argv[1]), float(sys.argv[2]), mining_process.load, int(sys.argv[3]))
