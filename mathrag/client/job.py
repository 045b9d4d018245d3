"""A job as an object: its state as last fetched, and its operations."""

import html
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack, cast
from uuid import uuid4

import msgspec

from mathrag.client import jobs
from mathrag.client.answers import Audit, JobView, PlanView, Provenance, RequestCounts, ResultRow
from mathrag.client.connection import Connection
from mathrag.client.errors import JobFailed
from mathrag.client.filters import SampleFilters
from mathrag.client.following import follow
from mathrag.client.grades import Grader, LocalGrades, grade
from mathrag.client.operations import lines_of
from mathrag.client.report import Report
from mathrag.client.request import Request
from mathrag.client.samples import Samples
from mathrag.client.waiting import Waiting, wait_for_end

if TYPE_CHECKING:
    from mathrag.client.async_connection import AsyncConnection

C = TypeVar("C", bound="Connection | AsyncConnection")


class JobHandle(Generic[C]):
    """What both clients' jobs have in common."""

    def __init__(self, client: C, view: JobView) -> None:
        self._client = client
        self.view = view
        """All that was known of it at the last look."""

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
        """Whether the job has ended."""
        return self.view.state in jobs.ENDED

    def __repr__(self) -> str:
        done = f"{self.counts.completed} of {self.counts.total}"
        return f"{type(self).__name__}({self.name!r}, {self.state}, {done} samples completed)"

    def _repr_html_(self) -> str:
        """Return the description as HTML, for a notebook."""
        return f"<code>{html.escape(repr(self))}</code>"

    def _check(self) -> None:
        if self.has_ended and self.state != "completed":
            reason = (self.view.reason or "no reason was given").strip().splitlines()[-1]
            raise JobFailed("job_failed", f"job {self.name} is {self.state}: {reason}", hint="job.report() has figures")


class Job(JobHandle[Connection]):
    """A job."""

    def refresh(self) -> Self:
        """Fetch the job as it is now."""
        return self._update(jobs.get(self.id))

    def wait(self, timeout_s: float | None = None, *, check: bool = True) -> Self:
        """Wait until the job has ended, also through a restart of the server.

        Args:
            timeout_s: seconds; None waits without limit.
            check: whether to raise `JobFailed` unless the job completed.

        Raises:
            TimedOut: it has not ended in time; it continues to run.
            JobFailed: it has failed or was cancelled.
        """
        if not self.has_ended:
            waiting = Waiting(f"job {self.id}", jobs.get(self.id), timeout_s)
            self.view = wait_for_end(self._client, waiting, JobView)
        if check:
            self._check()
        return self

    def watch(self) -> Iterator[JobView]:
        """Yield the job now and after each change until it has ended, also through a restart of the server."""
        body = self._client.read(jobs.get(self.id), dict[str, Any])
        for found in follow(self._client, cast("jobs.Job", body), self._client.sleep):
            self.view = msgspec.convert(found, JobView)
            yield self.view

    def samples(self, **filters: Unpack[SampleFilters]) -> Samples:
        """Return the samples, to iterate over or to read as a table."""
        return Samples(self._client, self.id, filters)

    def sample(self, index: int, *, repeat: int = 0, prompts: bool = False) -> Provenance:
        """Fetch one sample with all its calls; `prompts` adds the prompts of models."""
        return self._client.read(jobs.sample(self.id, index, repeat, prompts=prompts), Provenance)

    def results(self, *, prompts: bool = False) -> Iterator[ResultRow]:
        """Yield every sample that has ended so far, with the texts of models."""
        return lines_of(self._client, jobs.results(self.id, prompts=prompts), ResultRow)

    def save_results(self, file: str | Path, *, format: Literal["jsonl", "csv", "parquet"] | None = None) -> None:  # noqa: A002
        """Write the results to a file, in `format`, else as its suffix says, else as Parquet; an error leaves none."""
        request = jobs.results_file(self.id, Path(file), format)
        self._client.save(request, Path(file), retries=self._client.retries)

    def report(self) -> Report:
        """Fetch the report: accuracy with its interval, failures and cost; final once the job has ended."""
        return self._client.read(jobs.report(self.id), Report)

    def audit(self) -> Audit:
        """Check the job's rows against the invariants."""
        return self._client.read(jobs.audit(self.id), Audit)

    def plan(self) -> PlanView:
        """Fetch the plan: on which devices the remaining calls will run, and when."""
        return self._client.read(jobs.plan(self.id), PlanView)

    def grade(self, grader: Grader) -> LocalGrades:
        """Grade the completed answers here, by your own function; nothing is stored."""
        return grade(self.results(), grader)

    def change(
        self, *, name: str | None = None, rank: int | None = None, metadata: Mapping[str, str] | None = None
    ) -> Self:
        """Change name, rank or metadata; omitted fields stay."""
        return self._update(jobs.amend(self.id, name=name, rank=rank, metadata=metadata))

    def cancel(self) -> Self:
        """Cancel the job: none of its remaining calls start."""
        return self._update(jobs.change(self.id, "cancel"))

    def pause(self) -> Self:
        """Pause the job: no call starts until it is resumed."""
        return self._update(jobs.change(self.id, "pause"))

    def resume(self) -> Self:
        """Continue the paused job."""
        return self._update(jobs.change(self.id, "resume"))

    def requeue(self) -> "Job":
        """Submit the job again, as a new job that computes only what failed."""
        return Job(self._client, self._client.read(jobs.requeue(self.id, str(uuid4())), JobView))

    def _update(self, request: Request[Any]) -> Self:
        self.view = self._client.read(request, JobView)
        return self
