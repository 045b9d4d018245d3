"""Graphs as files that processes map into their memory."""

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import IO, overload

import numpy as np
from numpy.typing import NDArray
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.rules.graph import Graph
from shared.storage import graphs

LINE_END = ord("\n")
TRIPLE, TIME = "<i4", "<i8"
"""The types of `shared.storage.graphs`, which a mining process need not import."""


class MappedLines(Sequence[str]):
    """The lines of a mapped file, decoded when they are read; each takes 8 bytes of memory."""

    def __init__(self, file: Path) -> None:
        with file.open("rb") as opened:
            self._text = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        self._ends: NDArray[np.int64] = np.flatnonzero(np.frombuffer(self._text, np.uint8) == LINE_END)

    def __len__(self) -> int:
        return len(self._ends)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> list[str]: ...
    def __getitem__(self, at: int | slice) -> str | list[str]:
        if isinstance(at, slice):
            return [self[each] for each in range(*at.indices(len(self)))]
        place = range(len(self))[at]
        first = int(self._ends[place - 1]) + 1 if place else 0
        return self._text[first : int(self._ends[place])].decode()


def map_graph(folder: Path) -> Graph:
    times = folder / "times"
    return Graph(
        triples=np.memmap(folder / "triples", TRIPLE, mode="r").reshape(-1, 3),
        times=np.memmap(times, TIME, mode="r") if times.exists() else None,
        entities=MappedLines(folder / "entities"),
        relations=MappedLines(folder / "relations"),
    )


async def write_graph(connection: AsyncConnection, graph: int, folder: Path) -> None:
    """Write the graph with this row id into `folder`, with only a few blocks in memory at a time."""
    files: dict[graphs.Part, IO[bytes]] = {}
    try:
        async for block in graphs.stream_blocks(connection, graph):
            if block.part not in files:
                files[block.part] = (folder / block.part).open("wb")
            files[block.part].write(block.content)
    finally:
        for file in files.values():
            file.close()
