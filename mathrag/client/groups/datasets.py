"""Datasets: questions with expected answers."""

from collections.abc import Callable, Iterable
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from mathrag.client import texts as texts_module
from mathrag.client.answers import Dataset, DatasetDetails, DatasetUpload, ItemPreview, QuestionUpload
from mathrag.client.operations import C, Group, Lines, Listing, Operation
from mathrag.client.request import MOST_OF_A_PAGE, Request
from mathrag.client.uploads import (
    Format,
    Progress,
    Source,
    Unusable,
    Upload,
    file_format,
    file_of,
    make_error_options,
    rows_of,
)
from shared.ingest import graph_paths, paths
from shared.ingest.lines import Row


def create(
    name: str,
    source: Source,
    *,
    grader: str | None = None,
    split: str = "test",
    format: Format = "auto",  # noqa: A002 - what the API calls it
    delimiter: str | None = None,
    reader: str | None = None,
    skip_empty: bool = False,
    on_error: Unusable = "reject",
    progress: Callable[[Progress], None] | None = None,
) -> Request[Any]:
    """Upload questions; repeating the same upload changes nothing.

    Args:
        name: name of the dataset.
        source: a file (JSON lines, CSV, Parquet), a folder (MATH, BEIR, FlashRAG, AutoRAG), or rows.
        grader: name of the grader, such as "text"; None grades answers as mathematics.
        split: split of a MATH, BEIR or FlashRAG folder.
        format: format of a file; "auto" detects it from the first bytes.
        delimiter: delimiter of CSV: "comma", "semicolon" or "tab"; None detects it from the header.
        reader: name of a plug-in of the service that reads the file, instead of `format`.
        skip_empty: whether to leave out lines without a question.
        on_error: "reject" stores nothing if a line is invalid; "skip" stores all other lines.
        progress: called while lines are sent.
    """
    declared = {} if grader is None else {"grader": grader}
    if reader is not None:
        how = make_error_options(on_error, skip_empty=skip_empty)
        return texts_module.upload("datasets", file_of(source, progress), name, reader=reader, **how, **declared)
    kind = file_format(format)
    rows = rows_of(source, lambda path: paths.dataset_lines(path, split=split, format=kind, delimiter=delimiter))
    upload = Upload(rows, progress, skip_empty=skip_empty, on_error=on_error)
    return upload.count_left_out(
        texts_module.upload("datasets", upload.lines(source), name, **upload.options(), **declared)
    )


def list_datasets() -> Request[Any]:
    """List all datasets, newest first."""
    return texts_module.list_texts("datasets", MOST_OF_A_PAGE)


def get(name: str) -> Request[Any]:
    """Fetch a dataset with the numbers of its items by subject and level."""
    return texts_module.get("datasets", name)


def items(name: str) -> Request[Any]:
    """List all questions with their expected answers, in the dataset's order."""
    return texts_module.entries("datasets", name, MOST_OF_A_PAGE)


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
    side: Literal["object", "subject", "both"] = "both",
    grader: str = "text",
    unanswered: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Request[Any]:
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
    request = texts_module.from_graph(
        name, graph, upload, rules=rules, limit=limit, seed=seed, side=side, grader=grader, unanswered=unanswered
    )
    return upload.on(request)


def training_data(
    name: str,
    rules: str,
    form: Literal["pairs", "triplets", "instructions", "messages"] = "pairs",
    *,
    graph: str | None = None,
    limit: int | None = None,
    seed: int = 0,
    cot: bool = False,
) -> Request[Any]:
    """Download training data from the questions that rules of a bank lead to, line by line."""
    return texts_module.training(name, rules, form, graph=graph, limit=limit, seed=seed, cot=cot)


class Datasets(Group[C]):
    """Datasets: questions with expected answers."""

    create = Operation(create, DatasetUpload)
    list = Listing(list_datasets, Dataset)
    get = Operation(get, DatasetDetails)
    items = Listing(items, ItemPreview)
    from_graph = Operation(from_graph, QuestionUpload)
    training_data = Lines(training_data, dict[str, object])
