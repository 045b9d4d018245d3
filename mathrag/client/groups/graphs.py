"""Knowledge graphs."""

from collections.abc import Callable, Iterable
from itertools import chain
from os import PathLike
from pathlib import Path

from mathrag.client import graphs
from mathrag.client.answers import DeletedGraph, GraphUpload, StoredGraph
from mathrag.client.operations import C, Group, Listing, Operation
from mathrag.client.request import Json, Request
from mathrag.client.uploads import Progress, Upload
from mathrag.reading import graph_paths
from mathrag.reading.lines import Row


def create(
    name: str,
    facts: str | PathLike[str],
    *,
    splits: Iterable[str] = ("train",),
    phrases: str | PathLike[str] | None = None,
    inverse: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Request[Json]:
    """Upload facts and index them as documents; repeating the same upload changes nothing.

    Args:
        name: name of the graph and of its corpus.
        facts: a file, or a folder of splits.
        splits: splits of a folder.
        phrases: file whose columns are relation, phrase and, optionally, the phrase of the inverse.
        inverse: whether to add a document for the inverse of each fact.
        progress: called while lines are sent.
    """
    split_names = list(splits)

    def rows() -> Iterable[Row]:
        first = graph_paths.phrase_lines(Path(phrases)) if phrases is not None else ()
        return chain(first, graph_paths.fact_lines(Path(facts), split_names))

    upload = Upload(rows, progress)
    return upload.on(graphs.upload(upload, name, inverse=inverse))


class Graphs(Group[C]):
    """Knowledge graphs."""

    create = Operation(create, GraphUpload)
    list = Listing(graphs.list_graphs, StoredGraph)
    get = Operation(graphs.get, StoredGraph)
    delete = Operation(graphs.delete, DeletedGraph)
