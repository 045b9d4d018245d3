"""Operations on jobs: submit, list, compare; and a pipeline by its name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, Unpack
from uuid import uuid4

from mathrag.client import jobs
from mathrag.client.answers import (
    Audit,
    Calibrated,
    ChangedSample,
    Comparison,
    JobOptions,
    JobView,
    PlanView,
    Provenance,
    ResultRow,
    SampleRow,
    SideBySide,
)
from mathrag.client.job import AsyncJob, Job, JobListing, JobOperation, Report
from mathrag.client.operations import C, Download, Group, Lines, Listing, Operation
from mathrag.client.request import MOST_OF_A_PAGE, JobFilters, Request, SampleFilters, Value, without_none
from mathrag.client.uploads import (
    Format,
    Progress,
    Source,
    Unusable,
    Upload,
    file_format,
    file_of,
    require_file,
    rows_of,
)

if TYPE_CHECKING:
    from mathrag.client.async_connection import AsyncConnection
    from mathrag.client.connection import Connection


# Jobs and their results.

TRUST = 0.9
"""The server's default."""
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
    params: Mapping[str, object] | None = None,
    models: Mapping[str, str] | None = None,
    metadata: Mapping[str, str] | None = None,
    key: str | None = None,
    **options: Unpack[JobOptions],
) -> Request[Any]:
    """Submit a job, which runs in the background.

    Args:
        dataset: the dataset, as an object or by name.
        pipeline: name of the pipeline.
        name: name of the job; None derives one from pipeline and dataset.
        corpus: the corpus to search, as an object or by name; None searches nothing.
        params: nested parameters, such as `{"gate": {"tau": 0.3}}`.
        models: names of models by role, such as `{"judge": "world-judge"}`.
        metadata: your own keys and values.
        key: idempotency key; the same key returns the same job, None submits a new one.
        limit: number of items, from the first; None takes all.
        repeats: number of samples for each item (default: 1).
        reuse: "none" computes everything anew, although other jobs have the same results (default: "all").
        rank: priority; jobs of a smaller rank run first (default: 100).
    """
    dataset_name = name_of(dataset)
    body = {
        "name": name or f"{pipeline}-{dataset_name}"[:80] + f"-{uuid4().hex[:6]}", "dataset": dataset_name,
        "pipeline": pipeline, "corpus": None if corpus is None else name_of(corpus), "params": dict(params or {}),
        "models": dict(models or {}), "metadata": dict(metadata or {}), **options,
    }  # fmt: skip
    return jobs.submit(without_none(body), key or str(uuid4()))


def import_answers(
    name: str,
    dataset: str | HasName,
    source: Source,
    *,
    columns: Mapping[str, str] | None = None,
    first_repeat: int = 0,
    grader: str | None = None,
    format: Format = "auto",  # noqa: A002 - what the API calls it
    delimiter: str | None = None,
    reader: str | None = None,
    layout: Layout | None = None,
    on_error: Unusable = "reject",
    progress: Callable[[Progress], None] | None = None,
) -> Request[Any]:
    """Import and grade answers of another system, as a job of the pipeline `imported`.

    Args:
        name: name of the job.
        dataset: the dataset whose items were answered, as an object or by name.
        source: a file (JSON lines or CSV), or rows, with `id`, `index` or `question`, and `answer` or `text`.
        columns: names of columns by field, such as `{"answer": "prediction"}`.
        first_repeat: number of an item's first repeat in the file, such as 0 or 1.
        grader: name of the grader; None takes the one of the dataset.
        format: format of a file; "auto" detects it from the first bytes.
        delimiter: delimiter of CSV: "comma", "semicolon" or "tab"; None detects it from the header.
        reader: name of a plug-in of the service that reads the file, instead of `format`.
        layout: program whose log the file is, instead of `format`.
        on_error: "reject" stores nothing if a line is invalid; "skip" stores all other lines.
        progress: called while lines are sent.
    """
    given = [f"{what}={column}" for what, column in (columns or {}).items()]

    def read(path: Path) -> Iterable[Any]:
        return read_answers(path, given, layout, format=file_format(format), delimiter=delimiter)

    options: dict[str, Value | None] = {"column": given or None, "first_repeat": first_repeat, "grader": grader}
    options["on_error"] = on_error
    if reader is not None:
        options |= {"format": "auto", "reader": reader}
        return jobs.import_answers(file_of(source, progress), name, name_of(dataset), **options)
    if layout is not None:
        require_file(source, "layout")
    upload = Upload(rows_of(source, read), progress, on_error=on_error)
    return upload.on(jobs.import_answers(upload.lines(source), name, name_of(dataset), **options))


def read_answers(path: Path, columns: Sequence[str], layout: Layout | None, **options: Any) -> Iterable[Any]:
    """Read a file of answers; `columns` are pairs such as "answer=prediction"."""
    from shared.ingest import answers
    from shared.ingest.answers import make_mapping

    program = None if layout is None else answers.Layout(layout)
    return answers.read_answers(path, make_mapping(columns), layout=program, **options)


def list_jobs(**filters: Unpack[JobFilters]) -> Request[Any]:
    """List the jobs, newest first unless `sort` is given."""
    return jobs.list_jobs(MOST_OF_A_PAGE, **filters)


def get(job: str) -> Request[Any]:
    """Fetch a job as it is now, by its id, the first characters of its id, or its name."""
    return jobs.get(job)


def change(
    job: str, *, name: str | None = None, rank: int | None = None, metadata: Mapping[str, str] | None = None
) -> Request[Any]:
    """Change a job's name, rank or metadata, whatever its state; omitted fields stay."""
    return jobs.amend(job, name=name, rank=rank, metadata=metadata)


def cancel(job: str) -> Request[Any]:
    """Cancel a job: none of its remaining calls start."""
    return jobs.change(job, "cancel")


def pause(job: str) -> Request[Any]:
    """Pause a job: no call of it starts until it is resumed."""
    return jobs.change(job, "pause")


def resume(job: str) -> Request[Any]:
    """Resume a paused job."""
    return jobs.change(job, "resume")


def requeue(job: str, *, key: str | None = None) -> Request[Any]:
    """Submit an ended job again, as a new job that computes only what failed."""
    return jobs.requeue(job, key or str(uuid4()))


def report(job: str) -> Request[Any]:
    """Fetch the report: accuracy with its interval, failures and cost."""
    return jobs.report(job)


def audit(job: str) -> Request[Any]:
    """Check a job's rows against the invariants."""
    return jobs.audit(job)


def plan(job: str) -> Request[Any]:
    """Fetch the plan of a job: on which devices its remaining calls will run, and when."""
    return jobs.plan(job)


def calibration(job: str, *, trust: float = TRUST, judged_by: str | None = None) -> Request[Any]:
    """Compute thresholds for `crag` from a job whose lists are labelled, or judged by the judge of another job."""
    return jobs.calibration(job, trust, judged_by)


def samples(job: str, **filters: Unpack[SampleFilters]) -> Request[Any]:
    """List all samples in dataset order, whatever their states."""
    return jobs.samples(job, MOST_OF_A_PAGE, **filters)


def sample(job: str, index: int, *, repeat: int = 0, prompts: bool = False) -> Request[Any]:
    """Fetch a sample with all its calls; `prompts` adds the prompts of models."""
    return jobs.sample(job, index, repeat, prompts=prompts)


def results(job: str, *, prompts: bool = False) -> Request[Any]:
    """Yield every sample that has ended, with the texts of models; `prompts` adds those of the generator."""
    return jobs.results(job, prompts=prompts)


def results_file(
    job: str,
    *,
    format: Literal["jsonl", "csv", "parquet"] = "jsonl",  # noqa: A002 - what the API calls it
    prompts: bool = False,
) -> Request[Any]:
    """Download the results as the bytes of a file."""
    return jobs.file(job, "results", format=format, prompts=prompts)


def provenance(job: str) -> Request[Any]:
    """Download the hash-chained records of an ended job as JSON lines."""
    return jobs.file(job, "provenance")


def name_of(thing: str | HasName) -> str:
    """Return the name of a dataset or corpus."""
    return thing if isinstance(thing, str) else thing.name


class Jobs(Group[C]):
    """Jobs and their results."""

    submit = JobOperation(submit, JobView)
    import_answers = JobOperation(import_answers, JobView)
    list = JobListing(list_jobs, JobView)
    get = JobOperation(get, JobView)
    change = JobOperation(change, JobView)
    cancel = JobOperation(cancel, JobView)
    pause = JobOperation(pause, JobView)
    resume = JobOperation(resume, JobView)
    requeue = JobOperation(requeue, JobView)
    report = Operation(report, Report)
    audit = Operation(audit, Audit)
    plan = Operation(plan, PlanView)
    calibration = Operation(calibration, Calibrated)
    samples = Listing(samples, SampleRow)
    sample = Operation(sample, Provenance)
    results = Lines(results, ResultRow)
    results_file = Download(results_file)
    provenance = Download(provenance)


# Comparisons of jobs.

COMPARISON = "/v1/comparison"


class HasId(Protocol):
    """A job as an object."""

    @property
    def id(self) -> str:
        """The id by which the API finds the job."""
        ...


def compare(
    references: Sequence[str | HasId], *, baseline: str | None = None, measure: str | None = None
) -> Request[Any]:
    """Compare jobs on the items that they have in common, with intervals and tests.

    Args:
        references: at least two jobs, as objects or by id or name.
        baseline: the job that all others are compared with; None compares each pair.
        measure: "accuracy" (the default), "exact", "score" or "answer@K".
    """
    return jobs.compare(list(map(reference_of, references)), baseline, measure)


def changed_samples(
    left: str | HasId, right: str | HasId, *, only: Literal["changed", "gained", "lost"] = "changed"
) -> Request[Any]:
    """List the samples that exactly one of two jobs has right; "gained" are those that `left` has right."""
    query: dict[str, Value] = {
        "left": reference_of(left),
        "right": reference_of(right),
        "only": only,
        "limit": MOST_OF_A_PAGE,
    }
    return Request(path=f"{COMPARISON}/samples", query=query)


def compared_sample(left: str | HasId, right: str | HasId, index: int, *, repeat: int = 0) -> Request[Any]:
    """Fetch sample `index` of the left job beside the right job's sample of the same question."""
    return Request(
        path=f"{COMPARISON}/samples/{index}",
        query={"left": reference_of(left), "right": reference_of(right), "repeat": repeat},
    )


def reference_of(job: str | HasId) -> str:
    """Return the id or name by which the API finds a job."""
    return job if isinstance(job, str) else job.id


class Comparisons(Group[C]):
    """Comparisons of jobs."""

    compare = Operation(compare, Comparison)
    samples = Listing(changed_samples, ChangedSample)
    sample = Operation(compared_sample, SideBySide)


# A pipeline by its name: `client.pipeline("crag").run("math-500", corpus="math")`.


class Pipeline:
    """A pipeline, which answers datasets."""

    def __init__(self, client: "Connection", name: str) -> None:
        self._client = client
        self.name = name

    def __repr__(self) -> str:
        return f"Pipeline({self.name!r})"

    def run(
        self,
        dataset: str | HasName,
        *,
        corpus: str | HasName | None = None,
        name: str | None = None,
        limit: int | None = None,
        repeats: int = 1,
        models: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        **params: object,
    ) -> Job:
        """Submit a job over a dataset; `params` are the pipeline's parameters, such as `candidates=5`."""
        request = submit(
            dataset, self.name, corpus=corpus, name=name, limit=limit, repeats=repeats, models=models,
            metadata=metadata, params=params,
        )  # fmt: skip
        return Job(self._client, self._client.read(request, JobView))


class AsyncPipeline:
    """A pipeline for the asynchronous client, like `Pipeline`."""

    def __init__(self, client: "AsyncConnection", name: str) -> None:
        self._client = client
        self.name = name

    def __repr__(self) -> str:
        return f"AsyncPipeline({self.name!r})"

    async def run(
        self,
        dataset: str | HasName,
        *,
        corpus: str | HasName | None = None,
        name: str | None = None,
        limit: int | None = None,
        repeats: int = 1,
        models: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        **params: object,
    ) -> AsyncJob:
        """Submit a job over a dataset."""
        request = submit(
            dataset, self.name, corpus=corpus, name=name, limit=limit, repeats=repeats, models=models,
            metadata=metadata, params=params,
        )  # fmt: skip
        return AsyncJob(self._client, await self._client.read(request, JobView))
