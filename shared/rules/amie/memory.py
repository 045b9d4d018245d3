"""How much memory mining takes, from counts alone: upper estimates of what `bench.mining` measures."""

from shared.contracts.mining import Amie

PROCESS = 80 << 20
"""The interpreter with numpy and scipy: 59 MiB measured."""
JOINS = 200 << 20
"""Intermediate joins, matrices that are kept, and sizes that are remembered, each within bounds of its own."""
TRIPLE = 200
"""Bytes while the index is sorted: 176 measured at 272,000 to 4,000,000 triples, the graph's own included."""
ANCHORED_TRIPLE = 280
"""The same with constants: 246 measured."""
ENTITY = 150
"""Bytes of a name, and of what a search notes by entity."""
BODY = 64
"""Bytes of a pair of labels whose support is counted."""


def memory_bytes(triples: int, entities: int, relations: int, mining: Amie) -> int:
    """What a process takes at most, unless a single pair of entities has millions of paths between them."""
    bodies = min((2 * relations) ** 2, 8 * triples)
    each = ANCHORED_TRIPLE if mining.constants else TRIPLE
    return PROCESS + JOINS + triples * each + entities * ENTITY + bodies * BODY
