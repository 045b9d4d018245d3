"""A device in virtual time: jobs come, samples ask for one call after the other, `decide` flips, one call runs at once.

Nothing here is taken from the scheduler: who starves, who waits online and how long the device stood idle is derived
from the samples themselves."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from shared.calls import Lane
from shared.lease.policy import (
    DeviceResidency,
    FlipRules,
    ModelGroup,
    ModelLoad,
    WorkloadSnapshot,
    decide,
    group_singly,
    stands_idle,
)

# Pictures of work and devices, as `decide` is shown them.

JUDGE, GENERATOR = 1, 2


def load(
    model_id: int, calls: int = 1, lane: Lane | None = None, footprint_mib: int = 96, **seconds: float
) -> ModelLoad:
    """Work of a model; 1 is a judge, every other one a generator unless said."""
    lane = lane or (Lane.JUDGE if model_id == JUDGE else Lane.GENERATE)
    return ModelLoad(model_id=model_id, footprint_mib=footprint_mib, lane=lane, calls=calls, **seconds)


def picture(*loads: ModelLoad, ready: bool = False, cpu_calls: int = 0, cpu_idle_s: float = 0.0) -> WorkloadSnapshot:
    """The work."""
    return WorkloadSnapshot(loads=loads, ready=ready, cpu_calls=cpu_calls, cpu_idle_s=cpu_idle_s)


def held(
    *models: int, state: str = "open", reason: str | None = None, failures: int = 0, **seconds: float
) -> DeviceResidency:
    """What the device holds."""
    return DeviceResidency(epoch=5, models=models, state=state, reason=reason, failures=failures, **seconds)


LOOK_S = 0.25
"""Virtual pause between two looks of a device that has nothing to do."""
MOST_STEPS = 20_000


@dataclass
class Work:
    """A job: when it comes, and its samples as the models that they ask one after the other."""

    at: float
    samples: Sequence[Sequence[int]]
    online: bool = False


@dataclass
class Progress:
    """A sample under way."""

    job: int
    online: bool
    asks: list[int]
    since: float
    """When it asked for the first of these."""


class Flip(NamedTuple):
    """A residency as it was decided on."""

    decided_at: float
    models: tuple[int, ...]
    cause: str
    took_s: float
    before_open_s: float
    """How long the one before was open."""


@dataclass
class TimedDevice:
    """Runs until every sample has ended."""

    jobs: Sequence[Work]
    rules: FlipRules
    load_s: dict[int, float]
    call_s: float = 1.0
    measured: bool = True
    groups: Callable[[Sequence[ModelLoad]], list[ModelGroup]] = group_singly
    now: float = 0.0
    idle_s: float = 0.0
    """Time in which nothing was done though calls waited, over all residencies."""
    flips: list[Flip] = field(default_factory=list)
    served: list[tuple[float, bool]] = field(default_factory=list)
    """Of every call: how long it waited, and whether somebody waited online."""
    starved: dict[int, float] = field(default_factory=dict)
    """By job, its longest time without anything it could do."""

    def __post_init__(self) -> None:
        self._coming = sorted(range(len(self.jobs)), key=lambda job: self.jobs[job].at)
        self._came: list[float] = []
        self._samples: list[Progress] = []
        self._models: tuple[int, ...] = ()
        self._opened, self._idle = 0.0, 0.0
        self._starving: dict[int, float] = {}

    def run(self) -> "TimedDevice":
        """All jobs to their ends.

        Raises:
            AssertionError: it goes on for ever.
        """
        for _ in range(MOST_STEPS):
            self._arrive()
            if not self._samples and not self._coming:
                return self
            self._step()
        raise AssertionError(f"no end after {MOST_STEPS} steps: {self._samples}")

    def _step(self) -> None:
        work, held = self._picture(), self._held()
        target = decide(work, held, groups=self.groups(work.loads), rules=self.rules)
        if target is not None:
            self._flip(target.models, target.cause)
        elif ours := [sample for sample in self._samples if sample.asks[0] in self._models]:
            self._serve(min(ours, key=lambda sample: (not sample.online, sample.since)))
        else:
            self._pass(min([LOOK_S, *(self.jobs[job].at - self.now for job in self._coming)]), stands_idle(work, held))

    def _arrive(self) -> None:
        while self._coming and self.jobs[self._coming[0]].at <= self.now:
            job = self._coming.pop(0)
            self._came += [] if self.jobs[job].online else [self.jobs[job].at]
            for asks in self.jobs[job].samples:
                self._samples.append(Progress(job, self.jobs[job].online, list(asks), self.jobs[job].at))
        self._watch()

    def _serve(self, sample: Progress) -> None:
        self.served.append((self.now - sample.since, sample.online))
        sample.asks.pop(0)
        self._pass(self.call_s)
        sample.since = self.now
        self._samples = [each for each in self._samples if each.asks]

    def _flip(self, models: tuple[int, ...], cause: str) -> None:
        took_s = sum(self.load_s[model] for model in models)
        self.flips.append(Flip(self.now, models, cause, took_s, self.now - self._opened))
        self._models = models
        self._watch()
        self._pass(took_s)
        self._opened, self._idle = self.now, 0.0

    def _pass(self, seconds: float, idle: bool = False) -> None:
        self.now += seconds
        self._idle += seconds * idle
        self.idle_s += seconds * idle
        for job, since in self._starving.items():
            self.starved[job] = max(self.starved.get(job, 0.0), self.now - since)

    def _watch(self) -> None:
        """Who has nothing that he could do with what is resident, or is on its way."""
        could = {sample.job for sample in self._samples if sample.asks[0] in self._models}
        starving = {sample.job for sample in self._samples} - could
        self._starving = {job: self._starving.get(job, self.now) for job in starving}

    def _picture(self) -> WorkloadSnapshot:
        calls = Counter(sample.asks[0] for sample in self._samples)
        lull_s = self.now - sorted(self._came)[-2] if len(self._came) > 1 else inf
        loads = tuple(self._load(model, count) for model, count in sorted(calls.items()))
        return WorkloadSnapshot(loads=loads, ready=False, cpu_calls=0, cpu_idle_s=0.0, lull_s=lull_s)

    def _load(self, model: int, calls: int) -> ModelLoad:
        asking = [sample for sample in self._samples if sample.asks[0] == model]
        figures = {"call_s": self.call_s, "load_s": self.load_s[model]} if self.measured else {}
        starved = [self.now - self._starving[sample.job] for sample in asking if sample.job in self._starving]
        online = [self.now - sample.since for sample in asking if sample.online]
        waits = {"starved_s": max(starved, default=None), "online_s": max(online, default=None)}
        return load(model, calls, **figures, **{name: wait for name, wait in waits.items() if wait is not None})

    def _held(self) -> DeviceResidency | None:
        if not self.flips:
            return None
        paid_s = self.flips[-1].took_s if self.measured else 0.0
        return DeviceResidency(
            epoch=len(self.flips),
            models=self._models,
            state="open",
            open_s=self.now - self._opened,
            idle_s=self._idle,
            load_s=paid_s,
        )
