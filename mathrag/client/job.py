"""Jobs as objects: wait for them, and read their samples, grades and reports."""

import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from html import escape
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack, overload

import msgspec
from anyio import to_thread

from mathrag.client import answers, jobs
from mathrag.client.answers import Audit, JobView, PlanView, Provenance, RequestCounts, ResultRow, SampleNote, SampleRow
from mathrag.client.async_connection import AsyncConnection
from mathrag.client.connection import Connection
from mathrag.client.errors import Invalid, JobFailed, require
from mathrag.client.jobs import RowFormat
from mathrag.client.operations import Described, Group, P, aentries_of, alines_of, entries_of, is_async, lines_of
from mathrag.client.request import Request, SampleFilters
from mathrag.client.waiting import Waiting, afollow, await_end, follow, wait_for_end
from mathrag.formatting import format_accuracy, format_headline
from mathrag.intervals import Interval, bootstrap, estimate_share
from mathrag.report_lines import build_lines

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa


IN_MEMORY = 16 << 20
"""Largest table, in bytes, that is downloaded without a temporary file."""


C = TypeVar("C", bound=Connection | AsyncConnection)


class SamplesOf(Generic[C]):
    """Common base of both clients' samples."""

    def __init__(self, client: C, job: str, filters: SampleFilters) -> None:
        self._client = client
        self._filters = filters
        self._listing = jobs.samples(job, **filters)
        self._results = jobs.results_file(job, format="parquet")


class Samples(SamplesOf[Connection]):
    """Samples of a job; each iteration and each table sends new requests.

    Iteration yields all samples that match the filters, in any state. A table has the ended ones, with the models'
    texts, tokens and seconds.
    """

    def __iter__(self) -> Iterator[SampleRow]:
        return entries_of(self._client, self._listing, SampleRow)

    def to_arrow(self) -> "pa.Table":
        """Return the rows as an Arrow table."""
        require("pyarrow", "to_arrow")
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
            for piece in self._client.stream(self._results, retries=self._client.retries):
                file.write(piece)
            table = _read_table(file)
        return _select(table, {(each.index, each.repeat) for each in self}) if self._filters else table

    def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a pandas data frame."""
        require("pandas", "to_pandas")
        return self.to_arrow().to_pandas()

    def to_polars(self) -> "pl.DataFrame":
        """Return the rows as a Polars data frame."""
        polars = require("polars", "to_polars")
        return polars.from_arrow(self.to_arrow())


class AsyncSamples(SamplesOf[AsyncConnection]):
    """Samples for the asynchronous client, like `Samples`; tables are awaited."""

    def __aiter__(self) -> AsyncIterator[SampleRow]:
        return aentries_of(self._client, self._listing, SampleRow)

    async def to_arrow(self) -> "pa.Table":
        """Return the rows as an Arrow table."""
        require("pyarrow", "to_arrow")
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
            async for piece in self._client.stream(self._results, retries=self._client.retries):
                file.write(piece)
            table = await to_thread.run_sync(_read_table, file)
        return _select(table, {(each.index, each.repeat) async for each in self}) if self._filters else table

    async def to_pandas(self) -> "pd.DataFrame":
        """Return the rows as a pandas data frame."""
        require("pandas", "to_pandas")
        return (await self.to_arrow()).to_pandas()

    async def to_polars(self) -> "pl.DataFrame":
        """Return the rows as a Polars data frame."""
        polars = require("polars", "to_polars")
        return polars.from_arrow(await self.to_arrow())


def _read_table(file: IO[bytes]) -> "pa.Table":
    from pyarrow import parquet

    file.seek(0)
    return parquet.read_table(file)


def _select(table: "pa.Table", places: set[tuple[int, int]]) -> "pa.Table":
    """Return the rows of the samples with these indexes and repeats."""
    rows = zip(table["index"].to_pylist(), table["repeat"].to_pylist(), strict=True)
    return table.filter([row in places for row in rows])


Grader = Callable[[ResultRow], bool | float | None]
"""Returns the grade of an answer: True, False, a number from 0 to 1, or None if it cannot decide."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The function's grade of one answer."""

    index: int
    repeat: int
    value: float
    answer: str | None
    gold: str | None
    correct: bool | None
    """Verdict of the job's grader."""

    @property
    def differs(self) -> bool:
        """True if the job's grader disagrees; a value of 0.5 or more counts as right."""
        return self.correct is not None and self.correct != (self.value >= 0.5)


class LocalGrades(msgspec.Struct, frozen=True, kw_only=True):
    """The function's grades of a job's answers."""

    accuracy: Interval
    """Mean over items with its 95 % interval: Wilson's if all verdicts are right or wrong, otherwise by bootstrap."""
    items: int
    """Number of items with a verdict; the interval is over items, because repeats are not independent."""
    verdicts: tuple[Verdict, ...]
    undecided: int
    """Number of answers for which the function returned None."""

    @property
    def disagreements(self) -> tuple[Verdict, ...]:
        """Return the verdicts with which the job's grader disagrees."""
        return tuple(each for each in self.verdicts if each.differs)

    def __str__(self) -> str:
        found = self.accuracy
        if found.value is None:
            return "nothing was graded"
        between = f"{100 * found.low:.1f} to {100 * found.high:.1f}"
        return f"{100 * found.value:.1f} % ({between}), {self.items} items, {len(self.disagreements)} disagreements"


def grade(rows: Iterable[ResultRow], grader: Grader) -> LocalGrades:
    """Grade the completed answers with `grader`.

    Raises:
        Invalid: the grader returns a value other than True, False, None or a number from 0 to 1.
        MissingPackage: scipy, which computes the intervals, is not installed.
    """
    require("scipy", "grade")
    verdicts: list[Verdict] = []
    undecided = 0
    for row in rows:
        if row.state != "completed":
            continue
        value = _compute_value(row, grader)
        if value is None:
            undecided += 1
        else:
            verdicts.append(
                Verdict(
                    index=row.index, repeat=row.repeat, value=value, answer=row.answer, gold=row.gold,
                    correct=row.correct,
                )
            )  # fmt: skip
    by_item: dict[int, list[float]] = {}
    for each in verdicts:
        by_item.setdefault(each.index, []).append(each.value)
    means = Counter(sum(map(Fraction, values), Fraction(0)) / len(values) for values in by_item.values())
    mean = (None if all(each.value in (0, 1) for each in verdicts) else bootstrap([means])) or estimate_share(means)
    return LocalGrades(accuracy=mean, items=len(by_item), verdicts=tuple(verdicts), undecided=undecided)


def _compute_value(row: ResultRow, grader: Grader) -> float | None:
    try:
        grade = grader(row)
    except Exception as error:
        error.add_note(f"while grading sample {row.index}, repeat {row.repeat}")
        raise
    if grade is None:
        return None
    try:
        value = -1.0 if isinstance(grade, str) else float(grade)
    except (TypeError, ValueError):
        value = -1.0
    if not 0 <= value <= 1:
        hint = "return True, False, a number from 0 to 1, or None"
        raise Invalid("invalid", f"the grader returned {grade!r} for sample {row.index}", hint=hint)
    return value


BAR = (
    '<div style="position:relative;height:.8em;max-width:24em;background:#8883;border-radius:.4em">'
    '<div style="position:absolute;left:{left:.2f}%;width:{width:.2f}%;height:100%;background:#48a8;'
    'border-radius:.4em"></div>'
    '<div style="position:absolute;left:{at:.2f}%;width:2px;height:100%;background:#c33"></div></div>'
)
"""Bar from 0 to 100 % with the interval and the figure; readable on light and dark pages."""


class Report(answers.Report, frozen=True, kw_only=True):
    """A job's report."""

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the name and value of each figure, in the form of `mathrag job report`."""
        for name, value in build_lines(self._to_json()):
            if value not in (None, ""):
                yield name, str(value)

    def __str__(self) -> str:
        lines = list(self.lines())
        width = max([14, *(len(name) + 1 for name, _ in lines)])
        return "\n".join(f"{name:<{width}}{value}" for name, value in lines)

    def _repr_html_(self) -> str:
        """Return the report as HTML for a notebook; all texts of the server are escaped."""
        headline = escape(format_headline(self._to_json()))
        return "".join(
            (
                f"<p><strong>{escape(self.name)}</strong> ({escape(self.state)}): {headline}</p>",
                draw_bar(self.accuracy),
                draw_table(self.lines()),
                _draw_parts("by subject", self.by_subject),
                _draw_parts("by level", self.by_level),
                "".join(f"<p><em>{escape(note)}</em></p>" for note in self.notes),
            )
        )

    def _to_json(self) -> Any:
        return msgspec.to_builtins(self)


def draw_bar(found: answers.Accuracy | answers.Mean) -> str:
    """Return the figure in its interval as HTML; "" if nothing was measured."""
    if found.value is None or found.low is None or found.high is None:
        return ""
    low, high, at = (100 * min(1.0, max(0.0, each)) for each in (found.low, found.high, found.value))
    return BAR.format(left=low, width=high - low, at=at)


def draw_table(rows: Iterable[tuple[str, str]]) -> str:
    """Return an HTML table of names and values, which are escaped."""
    cells = (
        f'<tr><th style="text-align:left;vertical-align:top">{escape(name)}</th>'
        f'<td style="text-align:left">{escape(value)}</td></tr>'
        for name, value in rows
    )
    return f"<table>{''.join(cells)}</table>"


def _draw_parts(title: str, figures: Mapping[str, answers.Accuracy]) -> str:
    if len(figures) < 2:
        return ""
    rows = ((name, format_accuracy(msgspec.to_builtins(figure))) for name, figure in figures.items())
    return f"<details><summary>{title}</summary>{draw_table(rows)}</details>"


class JobHandle(Generic[C]):
    """Common base of both clients' jobs."""

    def __init__(self, client: C, view: JobView) -> None:
        self._client = client
        self.view = view
        """The job's fields, as last fetched."""

    @property
    def id(self) -> str:
        """The id, which is never reused."""
        return self.view.id

    @property
    def name(self) -> str:
        """The name, as last fetched."""
        return self.view.name

    @property
    def state(self) -> str:
        """The state, as last fetched, such as "running" or "completed"."""
        return self.view.state

    @property
    def counts(self) -> RequestCounts:
        """Numbers of samples by state, as last fetched."""
        return self.view.request_counts

    @property
    def has_ended(self) -> bool:
        """True if the job has ended."""
        return self.view.state in jobs.ENDED

    def __repr__(self) -> str:
        done = f"{self.counts.completed} of {self.counts.total}"
        return f"{type(self).__name__}({self.name!r}, {self.state}, {done} samples completed)"

    def _repr_html_(self) -> str:
        """Return the description as HTML, for a notebook."""
        return f"<code>{escape(repr(self))}</code>"

    def _check(self) -> None:
        if self.has_ended and self.state != "completed":
            reason = (self.view.reason or "no reason was given").strip().splitlines()[-1]
            raise JobFailed(
                "job_failed",
                f"job {self.name} did not complete ({self.state}): {reason}",
                hint="job.report() has figures",
            )


class Job(JobHandle[Connection]):
    """A job."""

    def refresh(self) -> Self:
        """Fetch the current state of the job."""
        return self._update(jobs.get(self.id))

    def wait(self, timeout_s: float | None = None, *, check: bool = True) -> Self:
        """Wait until the job has ended, even if the server restarts.

        Args:
            timeout_s: longest wait in seconds; None waits without limit.
            check: raise `JobFailed` unless the job completed.

        Raises:
            TimedOut: the job has not ended in time; it continues to run.
            JobFailed: the job failed or was cancelled.
        """
        if not self.has_ended:
            waiting = Waiting(f"job {self.id}", jobs.get(self.id), timeout_s)
            self.view = wait_for_end(self._client, waiting, JobView)
        if check:
            self._check()
        return self

    def watch(self) -> Iterator[JobView]:
        """Yield the job now and after each change until it has ended, even if the server restarts."""
        now = self._client.read(jobs.get(self.id), dict[str, Any])
        for found in follow(self._client, now, self._client.sleep):
            self.view = msgspec.convert(found, JobView)
            yield self.view

    def samples(self, **filters: Unpack[SampleFilters]) -> Samples:
        """Return the samples, to iterate over or to read as a table."""
        return Samples(self._client, self.id, filters)

    def sample(self, index: int, *, repeat: int = 0, prompts: bool = False) -> Provenance:
        """Fetch one sample with all its calls; `prompts` adds the prompts of models."""
        return self._client.read(jobs.sample(self.id, index, repeat=repeat, prompts=prompts), Provenance)

    def note(
        self, index: int, *, thumb: Literal["up", "down", "none"] | None = None, note: str | None = None,
        repeat: int = 0,
    ) -> tuple[SampleNote, ...]:  # fmt: skip
        """Change your thumb or note on a sample, and return all notes. Omitted fields are kept; `none` removes the
        thumb, and an empty text removes the note.
        """
        request = jobs.note(self.id, index, thumb=thumb, note=note, repeat=repeat)
        return self._client.read(request, tuple[SampleNote, ...])

    def results(self, *, prompts: bool = False) -> Iterator[ResultRow]:
        """Yield every ended sample, with the texts of the models."""
        return lines_of(self._client, jobs.results(self.id, prompts=prompts), ResultRow)

    def save_results(self, file: str | Path, *, format: RowFormat | None = None) -> None:  # noqa: A002
        """Write the results to a file in `format` (default: by its suffix, or Parquet); an error leaves no file."""
        request = jobs.results_for(self.id, Path(file), format)
        self._client.save(request, Path(file), retries=self._client.retries)

    def report(self) -> Report:
        """Fetch the report: accuracy with its interval, failures and cost; final once the job has ended."""
        return self._client.read(jobs.report(self.id), Report)

    def audit(self) -> Audit:
        """Check the job's rows against the invariants."""
        return self._client.read(jobs.audit(self.id), Audit)

    def plan(self) -> PlanView:
        """Fetch the plan: devices and times of the remaining calls."""
        return self._client.read(jobs.plan(self.id), PlanView)

    def grade(self, grader: Grader) -> LocalGrades:
        """Grade the completed answers with your own function; nothing is stored."""
        return grade(self.results(), grader)

    def change(
        self, *, name: str | None = None, rank: int | None = None, metadata: Mapping[str, str] | None = None
    ) -> Self:
        """Change name, rank or metadata; omitted fields are kept."""
        return self._update(jobs.change(self.id, name=name, rank=rank, metadata=metadata))

    def cancel(self) -> Self:
        """Cancel the job: none of its remaining calls start."""
        return self._update(jobs.cancel(self.id))

    def pause(self) -> Self:
        """Pause the job: no new calls start until you resume it."""
        return self._update(jobs.pause(self.id))

    def resume(self) -> Self:
        """Resume the paused job."""
        return self._update(jobs.resume(self.id))

    def requeue(self) -> "Job":
        """Submit the job again as a new job, which reuses the completed calls."""
        return read_job(self._client, jobs.requeue(self.id))

    def measure(
        self,
        metrics: Sequence[str],
        *,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        models: Mapping[str, str] | None = None,
    ) -> "Job":
        """Measure the answers of this completed job by a new job that only calls the judge model.

        Args:
            metrics: metrics to measure, such as `["faithfulness"]`.
            name: name of the new job; None derives one from this job's name.
            params: parameters of the group `metrics`, such as `{"metrics": {"unit": "claims"}}`.
            models: names of models by role, such as `{"judge": "world-judge"}`.
        """
        request = jobs.measure(self.id, metrics, name=name, params=params, models=models)
        return read_job(self._client, request)

    def _update(self, request: Request[Any]) -> Self:
        self.view = self._client.read(request, JobView)
        return self


class AsyncJob(JobHandle[AsyncConnection]):
    """A job of the asynchronous client, with the methods of `Job` as coroutines."""

    async def refresh(self) -> Self:
        """Fetch the current state of the job."""
        return await self._update(jobs.get(self.id))

    async def wait(self, timeout_s: float | None = None, *, check: bool = True) -> Self:
        """Wait until the job has ended; with `check`, raise `JobFailed` unless it completed."""
        if not self.has_ended:
            waiting = Waiting(f"job {self.id}", jobs.get(self.id), timeout_s)
            self.view = await await_end(self._client, waiting, JobView)
        if check:
            self._check()
        return self

    async def watch(self) -> AsyncIterator[JobView]:
        """Yield the job now and after each change until it has ended."""
        now = await self._client.read(jobs.get(self.id), dict[str, Any])
        async for found in afollow(self._client, now):
            self.view = msgspec.convert(found, JobView)
            yield self.view

    def samples(self, **filters: Unpack[SampleFilters]) -> AsyncSamples:
        """Return the samples, to iterate over or to read as a table."""
        return AsyncSamples(self._client, self.id, filters)

    async def sample(self, index: int, *, repeat: int = 0, prompts: bool = False) -> Provenance:
        """Fetch one sample with all its calls."""
        return await self._client.read(jobs.sample(self.id, index, repeat=repeat, prompts=prompts), Provenance)

    async def note(
        self, index: int, *, thumb: Literal["up", "down", "none"] | None = None, note: str | None = None,
        repeat: int = 0,
    ) -> tuple[SampleNote, ...]:  # fmt: skip
        """Change your thumb or note on a sample, and return all notes. Omitted fields are kept; `none` removes the
        thumb, and an empty text removes the note.
        """
        request = jobs.note(self.id, index, thumb=thumb, note=note, repeat=repeat)
        return await self._client.read(request, tuple[SampleNote, ...])

    def results(self, *, prompts: bool = False) -> AsyncIterator[ResultRow]:
        """Yield every ended sample, with the texts of the models."""
        return alines_of(self._client, jobs.results(self.id, prompts=prompts), ResultRow)

    async def save_results(self, file: str | Path, *, format: RowFormat | None = None) -> None:  # noqa: A002
        """Write the results to a file in `format` (default: by its suffix, or Parquet); an error leaves no file."""
        request = jobs.results_for(self.id, Path(file), format)
        await self._client.save(request, Path(file), retries=self._client.retries)

    async def report(self) -> Report:
        """Fetch the report: accuracy with its interval, failures and cost."""
        return await self._client.read(jobs.report(self.id), Report)

    async def audit(self) -> Audit:
        """Check the job's rows against the invariants."""
        return await self._client.read(jobs.audit(self.id), Audit)

    async def plan(self) -> PlanView:
        """Fetch the plan: devices and times of the remaining calls."""
        return await self._client.read(jobs.plan(self.id), PlanView)

    async def grade(self, grader: Grader) -> LocalGrades:
        """Grade the completed answers with your own function; nothing is stored."""
        return grade([row async for row in self.results()], grader)

    async def change(
        self, *, name: str | None = None, rank: int | None = None, metadata: Mapping[str, str] | None = None
    ) -> Self:
        """Change name, rank or metadata; omitted fields are kept."""
        return await self._update(jobs.change(self.id, name=name, rank=rank, metadata=metadata))

    async def cancel(self) -> Self:
        """Cancel the job: none of its remaining calls start."""
        return await self._update(jobs.cancel(self.id))

    async def pause(self) -> Self:
        """Pause the job: no new calls start until you resume it."""
        return await self._update(jobs.pause(self.id))

    async def resume(self) -> Self:
        """Resume the paused job."""
        return await self._update(jobs.resume(self.id))

    async def requeue(self) -> "AsyncJob":
        """Submit the job again as a new job, which reuses the completed calls."""
        return await aread_job(self._client, jobs.requeue(self.id))

    async def measure(
        self,
        metrics: Sequence[str],
        *,
        name: str | None = None,
        params: Mapping[str, object] | None = None,
        models: Mapping[str, str] | None = None,
    ) -> "AsyncJob":
        """Measure the answers of this completed job by a new job that only calls the judge model.

        Args:
            metrics: metrics to measure, such as `["faithfulness"]`.
            name: name of the new job; None derives one from this job's name.
            params: parameters of the group `metrics`, such as `{"metrics": {"unit": "claims"}}`.
            models: names of models by role, such as `{"judge": "world-judge"}`.
        """
        request = jobs.measure(self.id, metrics, name=name, params=params, models=models)
        return await aread_job(self._client, request)

    async def _update(self, request: Request[Any]) -> Self:
        self.view = await self._client.read(request, JobView)
        return self


class JobOperation(Described[P, JobView]):
    """An operation that sends one request and returns one job."""

    @overload
    def __get__(self, instance: None, owner: type) -> "JobOperation[P]": ...
    @overload
    def __get__(self, instance: "Group[Connection]", owner: type) -> Callable[P, Job]: ...
    @overload
    def __get__(
        self, instance: "Group[AsyncConnection]", owner: type
    ) -> Callable[P, Coroutine[Any, Any, AsyncJob]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        ask = aread_job if is_async(instance) else read_job
        return self.describe_method(lambda *a, **k: ask(instance.client, self.describe(*a, **k)), Job)


class JobListing(Described[P, JobView]):
    """An operation that yields jobs, and fetches one page at a time."""

    @overload
    def __get__(self, instance: None, owner: type) -> "JobListing[P]": ...
    @overload
    def __get__(self, instance: "Group[Connection]", owner: type) -> Callable[P, Iterator[Job]]: ...
    @overload
    def __get__(self, instance: "Group[AsyncConnection]", owner: type) -> Callable[P, AsyncIterator[AsyncJob]]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        each = _ayield_jobs if is_async(instance) else _yield_jobs
        return self.describe_method(lambda *a, **k: each(instance.client, self.describe(*a, **k)), Iterator[Job])


def read_job(client: Connection, request: Request[Any]) -> Job:
    """Send a request, and return the job in the answer."""
    return Job(client, client.read(request, JobView))


def _yield_jobs(client: Connection, request: Request[Any]) -> Iterator[Job]:
    for view in entries_of(client, request, JobView):
        yield Job(client, view)


async def aread_job(client: AsyncConnection, request: Request[Any]) -> AsyncJob:
    """Send a request, and return the job in the answer."""
    return AsyncJob(client, await client.read(request, JobView))


async def _ayield_jobs(client: AsyncConnection, request: Request[Any]) -> AsyncIterator[AsyncJob]:
    async for view in aentries_of(client, request, JobView):
        yield AsyncJob(client, view)
