"""A job as an object, for the asynchronous client."""

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self, Unpack, cast
from uuid import uuid4

import msgspec

from mathrag.client import jobs
from mathrag.client.answers import Audit, JobView, PlanView, Provenance, ResultRow
from mathrag.client.async_connection import AsyncConnection
from mathrag.client.filters import SampleFilters
from mathrag.client.following import afollow
from mathrag.client.grades import Grader, LocalGrades, grade
from mathrag.client.job import JobHandle
from mathrag.client.operations import alines_of
from mathrag.client.report import Report
from mathrag.client.request import Request
from mathrag.client.samples import AsyncSamples
from mathrag.client.waiting import Waiting, await_end


class AsyncJob(JobHandle[AsyncConnection]):
    """A job of the asynchronous client; its methods are those of `Job`, and are awaited."""

    async def refresh(self) -> Self:
        """Fetch the job as it is now."""
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
        """Yield the job as it is now and after each change, until it has ended."""
        body = await self._client.read(jobs.get(self.id), dict[str, Any])
        async for found in afollow(self._client, cast("jobs.Job", body)):
            self.view = msgspec.convert(found, JobView)
            yield self.view

    def samples(self, **filters: Unpack[SampleFilters]) -> AsyncSamples:
        """Return the samples, to iterate over or to read as a table."""
        return AsyncSamples(self._client, self.id, filters)

    async def sample(self, index: int, *, repeat: int = 0, prompts: bool = False) -> Provenance:
        """Fetch one sample with all its calls."""
        return await self._client.read(jobs.sample(self.id, index, repeat, prompts=prompts), Provenance)

    def results(self, *, prompts: bool = False) -> AsyncIterator[ResultRow]:
        """Yield every sample that has ended so far, with the texts of models."""
        return alines_of(self._client, jobs.results(self.id, prompts=prompts), ResultRow)

    async def save_results(
        self,
        file: str | Path,
        *,
        format: Literal["jsonl", "csv", "parquet"] | None = None,  # noqa: A002
    ) -> None:
        """Write the results to a file, in `format`, else as its suffix says, else as Parquet; an error leaves none."""
        request = jobs.results_file(self.id, Path(file), format)
        await self._client.save(request, Path(file), retries=self._client.retries)

    async def report(self) -> Report:
        """Fetch the report: accuracy with its interval, failures and cost."""
        return await self._client.read(jobs.report(self.id), Report)

    async def audit(self) -> Audit:
        """Check the job's rows against the invariants."""
        return await self._client.read(jobs.audit(self.id), Audit)

    async def plan(self) -> PlanView:
        """Fetch the plan: on which devices the remaining calls will run, and when."""
        return await self._client.read(jobs.plan(self.id), PlanView)

    async def grade(self, grader: Grader) -> LocalGrades:
        """Grade the completed answers here, by your own function; nothing is stored."""
        return grade([row async for row in self.results()], grader)

    async def change(
        self, *, name: str | None = None, rank: int | None = None, metadata: Mapping[str, str] | None = None
    ) -> Self:
        """Change name, rank or metadata; omitted fields stay."""
        return await self._update(jobs.amend(self.id, name=name, rank=rank, metadata=metadata))

    async def cancel(self) -> Self:
        """Cancel the job: none of its remaining calls start."""
        return await self._update(jobs.change(self.id, "cancel"))

    async def pause(self) -> Self:
        """Pause the job: no call starts until it is resumed."""
        return await self._update(jobs.change(self.id, "pause"))

    async def resume(self) -> Self:
        """Continue the paused job."""
        return await self._update(jobs.change(self.id, "resume"))

    async def requeue(self) -> "AsyncJob":
        """Submit the job again, as a new job that computes only what failed."""
        return AsyncJob(self._client, await self._client.read(jobs.requeue(self.id, str(uuid4())), JobView))

    async def _update(self, request: Request[Any]) -> Self:
        self.view = await self._client.read(request, JobView)
        return self
