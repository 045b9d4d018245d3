"""Experiments: grids of jobs."""

from collections.abc import Coroutine, Mapping
from typing import TYPE_CHECKING, Any, overload
from uuid import uuid4

from mathrag.client import experiments
from mathrag.client.answers import Entry, ExperimentPlan, ExperimentReport, ExperimentView
from mathrag.client.operations import C, Group, Listing, Operation, is_async
from mathrag.client.request import MOST_OF_A_PAGE, Request
from mathrag.client.waiting import Waiting, await_end, wait_for_end

if TYPE_CHECKING:
    from mathrag.client.async_connection import AsyncConnection
    from mathrag.client.connection import Connection


def plan(document: Mapping[str, object]) -> Request[Any]:
    """Estimate the jobs, samples, calls and time of an experiment without submitting it."""
    return experiments.plan(dict(document))


def submit(document: Mapping[str, object], *, key: str | None = None) -> Request[Any]:
    """Submit all jobs of an experiment, or none if one is invalid.

    Args:
        document: the fields of a YAML file for `mathrag experiment run` (docs/how-to/experiments.md).
        key: idempotency key; the same key returns the same experiment, None submits a new one.
    """
    return experiments.submit(dict(document), key or str(uuid4()))


def list_experiments() -> Request[Any]:
    """List all experiments, newest first."""
    return experiments.list_experiments(MOST_OF_A_PAGE)


def get(experiment: str) -> Request[Any]:
    """Fetch an experiment as it is now, with every cell."""
    return experiments.get(experiment)


def report(experiment: str, *, measure: str | None = None) -> Request[Any]:
    """Show a row for each cell, and the comparisons of cells."""
    return experiments.report(experiment, measure)


def cancel(experiment: str) -> Request[Any]:
    """Cancel all jobs of an experiment that have not ended."""
    return experiments.change(experiment, "cancel")


def resume(experiment: str) -> Request[Any]:
    """Resume the paused jobs of an experiment, and submit the missing ones."""
    return experiments.change(experiment, "resume")


class Experiments(Group[C]):
    """Experiments: grids of jobs."""

    plan = Operation(plan, ExperimentPlan)
    submit = Operation(submit, ExperimentView)
    list = Listing(list_experiments, Entry)
    get = Operation(get, ExperimentView)
    report = Operation(report, ExperimentReport)
    cancel = Operation(cancel, ExperimentView)
    resume = Operation(resume, ExperimentView)

    @overload
    def wait(self: "Experiments[Connection]", experiment: str, timeout_s: float | None = None) -> ExperimentView: ...
    @overload
    def wait(
        self: "Experiments[AsyncConnection]", experiment: str, timeout_s: float | None = None
    ) -> Coroutine[Any, Any, ExperimentView]: ...
    def wait(
        self: "Experiments[Any]", experiment: str, timeout_s: float | None = None
    ) -> ExperimentView | Coroutine[Any, Any, ExperimentView]:
        """Wait until all jobs of an experiment have ended, also through a restart of the server.

        Args:
            experiment: id or name.
            timeout_s: seconds; None waits without limit.

        Raises:
            TimedOut: it has not ended in time; it continues to run.
        """
        waiting = Waiting(f"experiment {experiment}", experiments.get(experiment), timeout_s)
        poll = await_end if is_async(self) else wait_for_end
        return poll(self.client, waiting, ExperimentView)
