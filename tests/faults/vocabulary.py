"""A vocabulary of faults that both the simulator and the real processes can perform.

A scenario reads like its events: `Scenario("P6", (at(generating(0.5), freeze(JUDGE, 20)),))`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from shared.lease.policy import FlipState


class Subject(StrEnum):
    """The target of an action."""

    JUDGE = "judge worker"
    GENERATOR = "generator worker"
    CHILD = "worker's child"
    GUARD = "guard"
    ORCHESTRATOR = "orchestrator"
    RETRIEVER = "retriever"
    SERVER = "model server"
    REDIS = "redis"
    POSTGRES = "postgres"
    EVERYTHING = "everything"
    TICKS = "ticks"
    CLOCK = "clock"
    DISK = "disk"
    VRAM = "vram"
    NVML = "nvml"
    GPU = "gpu"
    JOB = "job"


class Action(NamedTuple):
    """A verb, its target and an amount. `str` gives the form in which scenarios write it."""

    verb: str
    subject: Subject
    amount: float | str = ""

    def __str__(self) -> str:
        amount = f", {self.amount}" if self.amount != "" else ""
        return f"{self.verb}({self.subject}{amount})"


def kill(subject: Subject) -> Action:
    """Send SIGKILL to it and to all its children."""
    return Action("kill", subject)


def terminate(subject: Subject) -> Action:
    """Send SIGTERM; the target may finish its work."""
    return Action("terminate", subject)


def restart(subject: Subject) -> Action:
    """Stop the target and start it again with its data on disk."""
    return Action("restart", subject)


def freeze(subject: Subject, seconds: float) -> Action:
    """Send SIGSTOP, and SIGCONT after `seconds`."""
    return Action("freeze", subject, seconds)


def flush(subject: Subject) -> Action:
    """Delete all data of the target."""
    return Action("flush", subject)


def sever(subject: Subject) -> Action:
    """Break every connection to it once, in the middle of its traffic."""
    return Action("sever", subject)


def part(subject: Subject, seconds: float) -> Action:
    """Make the target unreachable for `seconds`."""
    return Action("part", subject, seconds)


def slow(subject: Subject, seconds: float) -> Action:
    """Delay all traffic to the target by `seconds`; 0 ends the delay."""
    return Action("slow", subject, seconds)


def drop(subject: Subject, every: int) -> Action:
    """Lose every `every`-th tick; 0 ends the loss."""
    return Action("drop", subject, every)


def double(subject: Subject, times: int) -> Action:
    """Deliver each tick `times` times at once; 1 restores normal delivery."""
    return Action("double", subject, times)


def reorder(subject: Subject) -> Action:
    """Deliver pending messages in another order."""
    return Action("reorder", subject)


def jump(subject: Subject, seconds: float) -> Action:
    """Move the wall clock of one host, or of the database, by `seconds`."""
    return Action("jump", subject, seconds)


def fill(subject: Subject) -> Action:
    """Fill the target so that no byte can be written; `relieve` ends it."""
    return Action("fill", subject)


def relieve(subject: Subject) -> Action:
    """Undo `fill`, `take`, `keep` and `hide`."""
    return Action("relieve", subject)


def keep(subject: Subject) -> Action:
    """Keep the memory of unloaded models occupied, although the server reports it as free."""
    return Action("keep", subject)


def take(subject: Subject, mib: float) -> Action:
    """Occupy `mib` MiB of it by another process."""
    return Action("take", subject, mib)


def lag(subject: Subject, seconds: float) -> Action:
    """Show freed memory as free only `seconds` later."""
    return Action("lag", subject, seconds)


def hide(subject: Subject) -> Action:
    """Make the target impossible to measure, or absent."""
    return Action("hide", subject)


def misbehave(subject: Subject, how: str) -> Action:
    """Make the target answer wrongly; `how` is a misbehaviour of its double."""
    return Action("misbehave", subject, how)


def cancel(subject: Subject) -> Action:
    """Cancel the job."""
    return Action("cancel", subject)


def submit(subject: Subject, kind: str) -> Action:
    """Submit another job: "urgent", "other judge" or "online"."""
    return Action("submit", subject, kind)


class Moment(NamedTuple):
    """The moment at which a share of a stage's calls is done, or the device is in a state of the flip."""

    stage: str
    share: float = 0.0

    def __str__(self) -> str:
        return f"{self.stage} {self.share:.0%}" if self.share else self.stage


def at_judged_share(share: float) -> Moment:
    """Return the moment at which this share of the judge's calls is answered."""
    return Moment("judge", share)


def at_generated_share(share: float) -> Moment:
    """Return the moment at which this share of the generator's calls is answered."""
    return Moment("generate", share)


def at_flip_state(state: FlipState) -> Moment:
    """Return the moment at which the device is next in this state of a flip."""
    return Moment(state.value)


class Event(NamedTuple):
    """An action at its moment."""

    moment: Moment
    action: Action

    def __str__(self) -> str:
        return f"at {self.moment}: {self.action}"


def at(moment: Moment, action: Action) -> Event:
    """Schedule an action for a moment of the job."""
    return Event(moment, action)


@dataclass(frozen=True)
class Scenario:
    """The events during a job. The job must end without intervention and with a clean audit."""

    fault: str
    """The catalogue's id: "P6"."""
    events: tuple[Event, ...]


class BackEnd(Protocol):
    """The place where scenarios are played: real processes, or a virtual clock."""

    name: str

    async def perform(self, action: Action) -> None:
        """Perform the action now."""
        ...

    async def wait_until_reached(self, moment: Moment) -> None:
        """Wait until the job reaches this moment."""
        ...
