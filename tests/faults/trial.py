"""A trial: a job on a stack, what happens to it, and that it comes out whole."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from shared.settings import Workers
from tests.faults.leftovers import stack_repaired
from tests.faults.processes import Processes
from tests.faults.real import RealBackEnd, TooLate
from tests.faults.recording import Seen
from tests.faults.vocabulary import Event, Scenario
from tests.running import Document, RunningStack, ended

JOB = {"reuse": "none", "params": {"gate": {"tau": 1.0}}}
"""Whatever rho is, the judge rates every candidate; and every job computes everything anew."""
SOONER = {"MATHRAG_WORKERS__CLAIM_TTL_S": "5", "MATHRAG_SWEEP_S": "1"}
"""Less than the defaults, 15 s and 5 s: what was lost is taken up again so much sooner."""
TRIES = 3
IN_FLIGHT = Workers().chunk * Workers().streams
"""Most calls that one worker may have in flight."""


@dataclass(frozen=True)
class Trial:
    """A test's access to the stack: it submits jobs, kills processes and checks the end."""

    stack: RunningStack
    whole: Mapping[str, int]
    """Calls that each stage makes when nothing goes wrong."""
    seen: Seen

    @property
    def processes(self) -> Processes:
        return Processes(self.stack)

    def repair(self) -> list[str]:
        """Make its stack whole, and return what was wrong."""
        return stack_repaired(self.stack)

    def survives(self, fault: str, *events: Event) -> Document:
        """A job that these events happen to; its report, once it has come out whole."""
        return self.ends_whole(self.play(fault, events, lambda job: RealBackEnd(self.stack, job, self.whole)))

    def play(self, fault: str, events: Sequence[Event], back_end: Callable[[str], RealBackEnd]) -> str:
        """Submit a job that these events happen to; its id, once they have. A job that ended too soon is repeated."""
        for _ in range(TRIES):
            job = self.stack.submit(fault, **JOB)
            with suppress(TooLate):
                asyncio.run(back_end(job).play(Scenario(fault, events)))
                return job
        raise TooLate

    def ends_whole(self, job: str) -> Document:
        """The job ends by itself, with every sample and a clean audit; its report."""
        self.stack.assert_whole(job)
        report: Document = self.stack.get(f"/v1/jobs/{job}/report")
        for name, figure in (("calls lapsed", "calls_lapsed"), ("loads", "model_loads"), ("seconds", "seconds")):
            self.seen.figure(name, report[figure])
        return report


def measure_calls(stack: RunningStack) -> dict[str, int]:
    """Count the calls that each stage of an undisturbed job makes."""
    job = stack.submit("undisturbed", **JOB)
    stack.wait(job, ended)
    made: dict[str, int] = stack.get(f"/v1/jobs/{job}/report")["calls_made"]
    return made
