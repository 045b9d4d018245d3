"""A pipeline by its name: `client.pipeline("crag").run("math-500", corpus="math")`."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mathrag.client.answers import JobView
from mathrag.client.async_job import AsyncJob
from mathrag.client.groups.jobs import HasName, submit
from mathrag.client.job import Job

if TYPE_CHECKING:
    from mathrag.client.async_connection import AsyncConnection
    from mathrag.client.connection import Connection


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
