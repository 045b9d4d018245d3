"""What can go wrong, in one vocabulary: the simulator and the real processes both know how to do every word of it.

A scenario reads as what happens: `Scenario("P6", (at(generating(0.5), freeze(JUDGE, 20)),))`.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from shared.lease.policy import FlipState


class Subject(StrEnum):
    """Who or what it happens to."""

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
    """A verb, whom it happens to, and how much of it; prints as it is written."""

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
    """SIGTERM: it may end what it is doing."""
    return Action("terminate", subject)


def restart(subject: Subject) -> Action:
    """Stop it and start it again, what it keeps on disk included."""
    return Action("restart", subject)


def freeze(subject: Subject, seconds: float) -> Action:
    """Send SIGSTOP, and SIGCONT after `seconds`."""
    return Action("freeze", subject, seconds)


def flush(subject: Subject) -> Action:
    """Forget everything that it keeps."""
    return Action("flush", subject)


def sever(subject: Subject) -> Action:
    """Break every connection to it once, in the middle of whatever goes over it."""
    return Action("sever", subject)


def part(subject: Subject, seconds: float) -> Action:
    """Let nobody reach it for `seconds`."""
    return Action("part", subject, seconds)


def slow(subject: Subject, seconds: float) -> Action:
    """Delay everything that goes to it by `seconds`; 0 ends that."""
    return Action("slow", subject, seconds)


def drop(subject: Subject, every: int) -> Action:
    """Lose every `every`-th tick; 0 ends that."""
    return Action("drop", subject, every)


def double(subject: Subject, times: int) -> Action:
    """Deliver each tick `times` times at once; 1 ends that."""
    return Action("double", subject, times)


def reorder(subject: Subject) -> Action:
    """What is under way arrives in another order."""
    return Action("reorder", subject)


def jump(subject: Subject, seconds: float) -> Action:
    """The wall clock of one host, or of the database, is set by `seconds`."""
    return Action("jump", subject, seconds)


def fill(subject: Subject) -> Action:
    """No byte more can be written; `relieve` ends that."""
    return Action("fill", subject)


def relieve(subject: Subject) -> Action:
    """What was filled, taken, kept or hidden is as before."""
    return Action("relieve", subject)


def keep(subject: Subject) -> Action:
    """What is unloaded stays occupied, whatever the server says."""
    return Action("keep", subject)


def take(subject: Subject, mib: float) -> Action:
    """Occupy `mib` MiB of it by another process."""
    return Action("take", subject, mib)


def lag(subject: Subject, seconds: float) -> Action:
    """What is freed shows as free only so much later."""
    return Action("lag", subject, seconds)


def hide(subject: Subject) -> Action:
    """It cannot be measured, or is not there."""
    return Action("hide", subject)


def misbehave(subject: Subject, how: str) -> Action:
    """It answers, but not as it should; `how` is a misbehaviour of its double."""
    return Action("misbehave", subject, how)


def cancel(subject: Subject) -> Action:
    """Somebody asks for its end."""
    return Action("cancel", subject)


def submit(subject: Subject, kind: str) -> Action:
    """Submit another job: "urgent", "other judge" or "online"."""
    return Action("submit", subject, kind)


class Moment(NamedTuple):
    """A share of a stage's calls is done, or the device is in a state of the flip."""

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
    """What happens to a job. Whatever it is, the job ends by itself and its audit finds nothing."""

    fault: str
    """The catalogue's id: "P6"."""
    events: tuple[Event, ...]


class BackEnd(Protocol):
    """Where scenarios are played: on real processes, or on a virtual clock."""

    name: str

    async def perform(self, action: Action) -> None:
        """Have it happen now."""
        ...

    async def wait_until_reached(self, moment: Moment) -> None:
        """Wait until the job has come to this moment."""
        ...
