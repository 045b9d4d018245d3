"""How much memory mining takes, from counts alone: upper estimates of what was measured."""

from shared.contracts.mining import TLogic
from shared.rules.tlogic.bodies import AT_ONCE

PROCESS = 80 << 20
"""The interpreter with numpy: 44 MiB measured, with a graph of 1,000 facts."""
FACT = 450
"""Bytes of the sorted edges, the graph's own included: 361 to 423 measured at 1,000,000 and 100,000 facts."""
NAME = 100
"""Bytes of an entity's or a relation's."""
ROW = 300
"""Bytes of a body or walk while it is drawn and counted: 235 measured."""


def memory_bytes(triples: int, entities: int, relations: int, mining: TLogic) -> int:
    """What a process takes at most."""
    rows = max(2 * AT_ONCE, mining.samples, mining.walks)
    if mining.exact:
        rows += 2 * triples  # a single body may go on by every edge of a relation
    return PROCESS + triples * FACT + (entities + relations) * NAME + rows * ROW
