"""Datasets: questions with expected answers."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import chain
from os import PathLike
from pathlib import Path

from mathrag.client import texts
from mathrag.client.answers import (
    Dataset,
    DatasetDetails,
    DatasetUpload,
    DrawnDatasets,
    Generation,
    ItemPreview,
    QuestionUpload,
)
from mathrag.client.operations import C, Group, Lines, Listing, Operation
from mathrag.client.request import Json, Request
from mathrag.client.uploads import Format, Progress, Source, Unusable, Upload, file_of, list_pairs, rows_of
from mathrag.reading import graph_paths, paths
from mathrag.reading.columns import ITEMS
from mathrag.reading.lines import Row
from mathrag.reading.rows import Format as FileFormat


def create(
    name: str,
    source: Source,
    *,
    grader: str | None = None,
    split: str = "test",
    format: Format = "auto",  # noqa: A002 - what the API calls it
    delimiter: str | None = None,
    columns: Mapping[str, str] | None = None,
    reader: str | None = None,
    skip_empty: bool = False,
    on_error: Unusable = "reject",
    progress: Callable[[Progress], None] | None = None,
) -> Request[Json]:
    """Upload questions; repeating the same upload changes nothing.

    Args:
        name: name of the dataset.
        source: a file (JSON lines, CSV, Parquet), a folder (MATH, BEIR, FlashRAG, AutoRAG), or rows.
        grader: name of the grader, such as "text"; None grades answers as mathematics.
        split: split of a MATH, BEIR or FlashRAG folder.
        format: format of a file; "auto" detects it from the first bytes.
        delimiter: delimiter of CSV: "comma", "semicolon" or "tab"; None detects it from the header.
        columns: names of columns by field, such as `{"question": "Frage"}`; other fields have their known names.
        reader: name of a plug-in of the service that reads the file, instead of `format`.
        skip_empty: whether to leave out lines without a question.
        on_error: "reject" stores nothing if a line is invalid; "skip" stores all other lines.
        progress: called while lines are sent.
    """
    pairs = list_pairs(columns, ITEMS)
    options = {"skip_empty": skip_empty, "on_error": on_error, "grader": grader, "column": pairs or None}
    if reader is not None:
        file = file_of(source, progress)
        return texts.upload("datasets", file, name, reader=reader, **options)
    kind = FileFormat(format)
    read = partial(paths.dataset_lines, split=split, format=kind, delimiter=delimiter, pairs=pairs)
    rows = rows_of(source, read)
    upload = Upload(rows, progress, skip_empty=skip_empty, on_error=on_error)
    return upload.count_left_out(texts.upload("datasets", upload.lines(source), name, format="jsonl", **options))


def from_graph(
    name: str,
    graph: str,
    facts: str | PathLike[str],
    *,
    splits: Iterable[str] = ("test",),
    templates: str | PathLike[str] | None = None,
    rules: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    side: texts.Side = "both",
    grader: str = "text",
    unanswered: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Request[Json]:
    """Create a dataset of questions about held-out facts of a graph; repeating it changes nothing.

    Args:
        name: name of the dataset.
        graph: name of the graph that leads to the answers.
        facts: file or folder with the held-out facts.
        splits: splits of a folder.
        templates: file whose columns are relation, question for the object and question for the subject.
        rules: name of a rule bank; without one, questions have no gold documents.
        limit: number of questions to draw; None takes all.
        seed: seed of the draw.
        side: which end of a fact the question asks for.
        grader: name of the grader.
        unanswered: whether to keep questions that no rule of the bank leads to.
        progress: called while lines are sent.
    """
    split_names = list(splits)

    def rows() -> Iterable[Row]:
        first = graph_paths.template_lines(Path(templates)) if templates is not None else ()
        return chain(first, graph_paths.fact_lines(Path(facts), split_names))

    upload = Upload(rows, progress)
    request = texts.from_graph(
        name, graph, upload, rules=rules, limit=limit, seed=seed, side=side, grader=grader, unanswered=unanswered
    )
    return upload.on(request)


class Datasets(Group[C]):
    """Datasets: questions with expected answers."""

    create = Operation(create, DatasetUpload)
    list = Listing(texts.list_datasets, Dataset)
    get = Operation(texts.get_dataset, DatasetDetails)
    items = Listing(texts.items, ItemPreview)
    draw = Operation(texts.draw, DrawnDatasets)
    from_graph = Operation(from_graph, QuestionUpload)
    generate = Operation(texts.generate, Generation)
    training_data = Lines(texts.training_data, dict[str, object])
