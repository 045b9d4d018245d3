"""Count the facts of each relation of a graph, block by block."""

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage import graph_blocks


async def count_relations(connection: AsyncConnection, graph: int) -> list[tuple[str, int]]:
    """Return (relation, facts) of a graph (row id), most facts first, ties in the graph's order."""
    names: list[str] = []
    counts: NDArray[np.int64] = np.zeros(0, np.int64)
    async for block in graph_blocks.stream_blocks(connection, graph):
        if block.part == "relations":
            names += graph_blocks.decode_names(block.content)
        elif block.part == "triples":
            relations = np.frombuffer(block.content, graph_blocks.DTYPES["triples"])[1::3]
            found = np.bincount(relations, minlength=len(counts))
            found[: len(counts)] += counts
            counts = found
    order = np.argsort(-counts, kind="stable").tolist()
    return [(names[at], int(counts[at])) for at in order]
