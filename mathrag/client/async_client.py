"""The asynchronous client: `await AsyncClient().jobs.get("first")`."""

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from mathrag.client.async_connection import AsyncConnection
from mathrag.client.client import OperationGroups

if TYPE_CHECKING:
    from mathrag.client.comparison import Comparison
    from mathrag.client.inputs import Input
    from mathrag.client.job import AsyncJob


class AsyncClient(AsyncConnection, OperationGroups[AsyncConnection]):
    """Connection to one server, with every operation of its API. Create one client for each event loop."""

    async def run(
        self,
        pipeline: str,
        *,
        dataset: "Input",
        corpus: "Input | None" = None,
        grader: str | None = None,
        metrics: Sequence[str] = (),
        name: str | None = None,
        limit: int | None = None,
        repeats: int = 1,
        models: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        **params: object,
    ) -> "AsyncJob":
        """Upload new data, submit a job, and return it without waiting for its end, like `Client.run`."""
        from mathrag.client.inputs import astore

        questions = await astore(self, "datasets", dataset, grader)
        documents = None if corpus is None else await astore(self, "corpora", corpus)
        job = await self.jobs.submit(
            questions, pipeline, corpus=documents, grader=grader, metrics=metrics, name=name, limit=limit,
            repeats=repeats, models=models, metadata=metadata, params=params,
        )  # fmt: skip
        for warning in (*questions.warnings, *(documents.warnings if documents else ()), *job.view.warnings):
            warnings.warn(warning, stacklevel=2)
        return job

    async def compare(
        self, *jobs: "str | AsyncJob", baseline: "str | AsyncJob | None" = None, measure: str | None = None
    ) -> "Comparison":
        """Wait until all jobs have ended, and compare them on their common questions."""
        for each in jobs if baseline is None else (*jobs, baseline):
            await (await self.jobs.get(each) if isinstance(each, str) else each).wait()
        return await self.comparisons.compare(jobs, baseline=baseline, measure=measure)
