"""Experiments: grids of jobs."""

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, overload

from mathrag.client import experiments
from mathrag.client.answers import Entry, ExperimentPlan, ExperimentReport, ExperimentView, PilotView
from mathrag.client.operations import C, Group, Listing, Operation, is_async
from mathrag.client.waiting import Waiting, await_end, wait_for_end

if TYPE_CHECKING:
    from mathrag.client.async_connection import AsyncConnection
    from mathrag.client.connection import Connection


class Experiments(Group[C]):
    """Experiments: grids of jobs."""

    plan = Operation(experiments.plan, ExperimentPlan)
    submit = Operation(experiments.submit, ExperimentView)
    pilot = Operation(experiments.pilot, PilotView)
    list = Listing(experiments.list_experiments, Entry)
    get = Operation(experiments.get, ExperimentView)
    report = Operation(experiments.report, ExperimentReport)
    cancel = Operation(experiments.cancel, ExperimentView)
    resume = Operation(experiments.resume, ExperimentView)

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
