"""Operations that return jobs as objects, whose methods send further requests."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, overload

from mathrag.client.answers import JobView
from mathrag.client.async_job import AsyncJob
from mathrag.client.job import Job
from mathrag.client.operations import Described, Group, P, aentries_of, entries_of, is_async
from mathrag.client.request import Request

if TYPE_CHECKING:
    from mathrag.client.async_connection import AsyncConnection
    from mathrag.client.connection import Connection


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
        ask = _amake_job if is_async(instance) else _ask
        return self.describe_method(lambda *a, **k: ask(instance.client, self.describe(*a, **k)), Job)


class JobListing(Described[P, JobView]):
    """An operation that yields jobs, fetching a page at a time."""

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


def _ask(client: "Connection", request: Request[Any]) -> Job:
    return Job(client, client.read(request, JobView))


def _yield_jobs(client: "Connection", request: Request[Any]) -> Iterator[Job]:
    for view in entries_of(client, request, JobView):
        yield Job(client, view)


async def _amake_job(client: "AsyncConnection", request: Request[Any]) -> AsyncJob:
    return AsyncJob(client, await client.read(request, JobView))


async def _ayield_jobs(client: "AsyncConnection", request: Request[Any]) -> AsyncIterator[AsyncJob]:
    async for view in aentries_of(client, request, JobView):
        yield AsyncJob(client, view)
