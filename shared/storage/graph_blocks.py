"""Store a graph's arrays and names as compressed blocks of bounded size, so that both sides need little memory."""

import asyncio
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.rules.graph import Graph
from shared.storage.copying import copy

BLOCK_BYTES = 1 << 20
"""Largest uncompressed block, except for a block with a single longer name."""
LEVEL = 1
"""Compression level of zlib, the fastest."""
AT_ONCE = 8
"""Blocks fetched per round trip."""
Part = Literal["triples", "times", "entities", "relations"]
DTYPES: dict[Part, str] = {"triples": "<i4", "times": "<i8"}
"""Element types of the array parts; triples are rows of three. The other parts are names, one per UTF-8 line."""
COLUMNS = ("graph_id", "part", "ordinal", "content")
SELECT = text("SELECT part, content FROM graph_blocks WHERE graph_id = :graph ORDER BY part, ordinal")


class Block(NamedTuple):
    """A piece of a part. The blocks of a part come in order."""

    part: Part
    content: bytes


async def store_graph(connection: AsyncConnection, graph_id: int, graph: Graph) -> None:
    """Store the whole graph as rows of `graph_blocks`."""
    await copy(connection, "graph_blocks", COLUMNS, _rows(graph_id, graph))


async def stream_blocks(connection: AsyncConnection, graph_id: int) -> AsyncIterator[Block]:
    """Yield all blocks, decompressed, with only a few in memory."""
    values, options = {"graph": graph_id}, {"yield_per": AT_ONCE}
    async with connection.stream(SELECT, values, execution_options=options) as rows:
        async for row in rows:
            yield Block(row.part, await asyncio.to_thread(zlib.decompress, row.content))


async def load_graph(connection: AsyncConnection, graph_id: int) -> Graph:
    """Load the whole graph: 12 bytes per fact, 20 with times, plus the names."""
    arrays: defaultdict[Part, bytearray] = defaultdict(bytearray)
    found: defaultdict[Part, list[str]] = defaultdict(list)
    async for part, content in stream_blocks(connection, graph_id):
        if part in DTYPES:
            arrays[part] += content
        else:
            found[part] += decode_names(content)
    triples = np.frombuffer(arrays["triples"], DTYPES["triples"]).reshape(-1, 3)
    times = np.frombuffer(arrays["times"], DTYPES["times"]) if "times" in arrays else None
    return Graph(triples, times, found["entities"], found["relations"])


def decode_names(content: bytes) -> list[str]:
    """Decode a block of entity or relation names."""
    return content.decode().split("\n")[:-1]


async def _rows(graph_id: int, graph: Graph) -> AsyncIterator[tuple[int, Part, int, bytes]]:
    for part, pieces in _pieces(graph).items():
        for ordinal, piece in enumerate(pieces):
            yield graph_id, part, ordinal, await asyncio.to_thread(zlib.compress, piece, LEVEL)


def _pieces(graph: Graph) -> dict[Part, Iterator[bytes]]:
    found: dict[Part, Iterator[bytes]] = {"triples": _arrays("triples", graph.triples)}
    if graph.times is not None:
        found["times"] = _arrays("times", graph.times)
    return {**found, "entities": _lines(graph.entities), "relations": _lines(graph.relations)}


def _arrays(part: Part, values: NDArray[np.int32] | NDArray[np.int64]) -> Iterator[bytes]:
    rows = BLOCK_BYTES // values[:1].nbytes
    for first in range(0, len(values), rows):
        yield values[first : first + rows].astype(DTYPES[part], copy=False).tobytes()


def _lines(found: Sequence[str]) -> Iterator[bytes]:
    piece = bytearray()
    for name in found:
        line = f"{name}\n".encode()
        if piece and len(piece) + len(line) > BLOCK_BYTES:
            yield bytes(piece)
            piece.clear()
        piece += line
    yield bytes(piece)
