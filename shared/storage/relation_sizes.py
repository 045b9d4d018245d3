"""How many facts each relation of a graph has, counted block by block."""

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.storage import graph_blocks


async def relation_sizes(connection: AsyncConnection, graph: int) -> list[tuple[str, int]]:
    """Every relation of the graph with this row id and its facts, most facts first, else in the graph's order."""
    names: list[str] = []
    counts: NDArray[np.int64] = np.zeros(0, np.int64)
    async for block in graph_blocks.blocks(connection, graph):
        if block.part == "relations":
            names += graph_blocks.names(block.content)
        elif block.part == "triples":
            relations = np.frombuffer(block.content, graph_blocks.DTYPES["triples"])[1::3]
            found = np.bincount(relations, minlength=len(counts))
            found[: len(counts)] += counts
            counts = found
    order = np.argsort(-counts, kind="stable").tolist()
    return [(names[at], int(counts[at])) for at in order]
