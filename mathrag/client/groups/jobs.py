"""Operations on jobs: submit, list, compare."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol, Unpack, cast
from uuid import uuid4

from mathrag.client import jobs
from mathrag.client.answers import (
    Audit,
    Calibrated,
    ChangedSample,
    JobOptions,
    JobView,
    PlanView,
    Provenance,
    ResultRow,
    SampleNote,
    SampleRow,
    SideBySide,
)
from mathrag.client.comparison import Comparison
from mathrag.client.job import JobListing, JobOperation, Report
from mathrag.client.operations import C, Download, Group, Lines, Listing, Operation
from mathrag.client.request import Json, Request, Value, without_none
from mathrag.client.uploads import (
    Format,
    Progress,
    Source,
    Unusable,
    Upload,
    file_of,
    require_file,
    rows_of,
)
from mathrag.reading.lines import Row
from mathrag.reading.rows import Format as FileFormat

Layout = Literal["inspect", "lm-eval", "flashrag", "openai-batch", "ragas", "deepeval"]
"""A program whose logs can be imported: inspect_ai, lm-evaluation-harness, FlashRAG and others."""


class HasName(Protocol):
    """A dataset or corpus that the API returned."""

    @property
    def name(self) -> str:
        """Name of the corpus or dataset."""
        ...


def submit(
    dataset: str | HasName,
    pipeline: str,
    *,
    name: str | None = None,
    corpus: str | HasName | None = None,
    grader: str | None = None,
    metrics: Sequence[str] = (),
    params: Mapping[str, object] | None = None,
    models: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    key: str | None = None,
    **options: Unpack[JobOptions],
) -> Request[Json]:
    """Submit a job over a stored dataset; it runs in the background. `client.run` uploads files, too.

    Args:
        dataset: the dataset, as an object or by name.
        pipeline: name of the pipeline.
        name: name of the job; None makes one from that of the pipeline.
        corpus: the corpus to search, as an object or by name; None searches nothing.
        grader: name of the grader; None takes the one of the dataset.
        metrics: metrics for which the judge model labels the answers, such as `["faithfulness"]`.
        params: nested parameters, such as `{"gate": {"tau": 0.3}}`.
        models: names of models by role, such as `{"judge": "world-judge"}`.
        metadata: your own keys and values.
        key: idempotency key; the same key returns the same job, None submits a new one.
        limit: number of items, from the first; None takes all.
        repeats: number of samples for each item (default: 1).
        reuse: "none" computes everything anew, although other jobs have the same results (default: "all").
        rank: priority; jobs of a smaller rank run first (default: 100).
    """
    nested = dict(params or {})
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    for group, name_, value in (("grading", "grader", grader), ("metrics", "names", names or None)):
        if value is not None:
            nested[group] = {**cast("Mapping[str, object]", nested.get(group, {})), name_: value}
    body = {
        "name": name or f"{pipeline}-{uuid4().hex[:6]}", "dataset": name_of(dataset), "pipeline": pipeline,
        "corpus": None if corpus is None else name_of(corpus), "params": nested,
        "models": dict(models or {}), "metadata": dict(metadata or {}), **options,
    }  # fmt: skip
    return jobs.submit(without_none(body), key)


def import_answers(
    name: str,
    dataset: str | HasName,
    source: Source,
    *,
    columns: Mapping[str, str] | None = None,
    first_repeat: int = 0,
    grader: str | None = None,
    metrics: Sequence[str] = (),
    models: Mapping[str, str] | None = None,
    format: Format = "auto",  # noqa: A002 - what the API calls it
    delimiter: str | None = None,
    reader: str | None = None,
    layout: Layout | None = None,
    on_error: Unusable = "reject",
    progress: Callable[[Progress], None] | None = None,
) -> Request[Json]:
    """Import and grade answers of another system, as a job of the pipeline `imported`.

    Args:
        name: name of the job.
        dataset: the dataset whose items were answered, as an object or by name.
        source: a file (JSON lines or CSV), or rows, with `id`, `index` or `question`, `answer` or `text`, and, if they
            are known, the texts of the prompt's documents in `contexts`.
        columns: names of columns by field, such as `{"answer": "prediction"}`.
        first_repeat: number of an item's first repeat in the file, such as 0 or 1.
        grader: name of the grader; None takes the one of the dataset.
        metrics: metrics for which the judge model labels the answers, such as `["faithfulness"]`.
        models: names of models by role; only `judge` is asked.
        format: format of a file; "auto" detects it from the first bytes.
        delimiter: delimiter of CSV: "comma", "semicolon" or "tab"; None detects it from the header.
        reader: name of a plug-in of the service that reads the file, instead of `format`.
        layout: program whose log the file is, instead of `format`.
        on_error: "reject" stores nothing if a line is invalid; "skip" stores all other lines.
        progress: called while lines are sent.
    """
    given = [f"{what}={column}" for what, column in (columns or {}).items()]

    def read(path: Path) -> Iterable[Row]:
        from mathrag.reading import answers

        program = None if layout is None else answers.Layout(layout)
        mapping = answers.make_mapping(given)
        return answers.read_answers(path, mapping, layout=program, format=FileFormat(format), delimiter=delimiter)

    options: dict[str, Value | None] = {"column": given or None, "first_repeat": first_repeat, "grader": grader}
    options |= {"metric": list(metrics) or None, "on_error": on_error}
    options["model"] = [f"{role}={model}" for role, model in (models or {}).items()] or None
    if reader is not None:
        options |= {"format": "auto", "reader": reader}
        return jobs.import_answers(file_of(source, progress), name, name_of(dataset), **options)
    if layout is not None:
        require_file(source, "layout")
    upload = Upload(rows_of(source, read), progress, on_error=on_error)
    return upload.on(jobs.import_answers(upload.lines(source), name, name_of(dataset), **options))


def name_of(thing: str | HasName) -> str:
    """Return the name of a dataset or corpus."""
    return thing if isinstance(thing, str) else thing.name


class Jobs(Group[C]):
    """Jobs and their results."""

    submit = JobOperation(submit, JobView)
    import_answers = JobOperation(import_answers, JobView)
    list = JobListing(jobs.list_jobs, JobView)
    get = JobOperation(jobs.get, JobView)
    change = JobOperation(jobs.change, JobView)
    cancel = JobOperation(jobs.cancel, JobView)
    pause = JobOperation(jobs.pause, JobView)
    resume = JobOperation(jobs.resume, JobView)
    requeue = JobOperation(jobs.requeue, JobView)
    measure = JobOperation(jobs.measure, JobView)
    report = Operation(jobs.report, Report)
    audit = Operation(jobs.audit, Audit)
    plan = Operation(jobs.plan, PlanView)
    calibration = Operation(jobs.calibration, Calibrated)
    samples = Listing(jobs.samples, SampleRow)
    sample = Operation(jobs.sample, Provenance)
    note = Operation(jobs.note, tuple[SampleNote, ...])
    results = Lines(jobs.results, ResultRow)
    results_file = Download(jobs.results_file)
    provenance = Download(jobs.provenance)


class Comparisons(Group[C]):
    """Comparisons of jobs."""

    compare = Operation(jobs.compare, Comparison)
    samples = Listing(jobs.changed_samples, ChangedSample)
    sample = Operation(jobs.compared_sample, SideBySide)
