"""The fault points: at which moment what happens, in the vocabulary's words. A schedule takes some of them.

A moment is said by the process that comes to it: "before answer" is a statement that is about to be sent, "after
answer" one that has happened and whose result has not been heard of.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from random import Random
from typing import NamedTuple

from shared.lease.policy import FlipState
from tests.faults import report
from tests.faults import vocabulary as say
from tests.faults.report import SIMULATOR, Place, Sight
from tests.faults.vocabulary import Action, Event, Moment, Subject

WORKERS = (Subject.JUDGE, Subject.GENERATOR)
ANYBODY = ""
"""The moment is the same for every process that reaches it."""


class Point(NamedTuple):
    """One fault point."""

    name: str
    whose: tuple[Subject, ...]
    """Whose moment it is; several: the seed chooses."""
    moment: str
    act: Callable[[Subject, Random], Action]
    most: int = 3
    """It strikes when the moment comes for the first time, or a later one, up to this."""
    stands_for: tuple[str, ...] = ()
    """Which faults of the catalogue it is."""


class Fault(NamedTuple):
    """A fault point as a schedule has it."""

    point: str
    whose: Subject
    number: int
    """It strikes when the moment comes for the `number`-th time."""
    action: Action

    @property
    def moment(self) -> str:
        """As the processes say it."""
        return POINTS[self.point].moment if not self.whose else f"{self.whose}: {POINTS[self.point].moment}"

    def __str__(self) -> str:
        """A sentence of the vocabulary."""
        return str(Event(Moment(f"{self.moment} #{self.number}"), self.action))

    @property
    def token(self) -> str:
        """For the command line; `read` is its inverse."""
        return f"{self.point}/{self.whose.name if self.whose else ''}/{self.number}/{self.action.amount}"


def read(token: str) -> Fault:
    """A fault from its token."""
    name, whose, number, amount = token.split("/")
    subject = Subject[whose] if whose else Subject.EVERYTHING
    action = POINTS[name].act(subject, Random(0))
    said: float | str = amount
    if not isinstance(action.amount, str):
        said = type(action.amount)(amount)
    return Fault(name, Subject[whose] if whose else ANYBODY, int(number), action._replace(amount=said))  # type: ignore[arg-type]


def choose(point: Point, rng: Random) -> Fault:
    """The point with its details."""
    whose = rng.choice(point.whose) if point.whose else ANYBODY
    action = point.act(whose or Subject.EVERYTHING, rng)  # type: ignore[arg-type]
    return Fault(point.name, whose, rng.randint(1, point.most), action)  # type: ignore[arg-type]


def _kill(whose: Subject, _rng: Random) -> Action:
    return say.kill(whose)


def _freeze(low: float, high: float) -> Callable[[Subject, Random], Action]:
    return lambda whose, rng: say.freeze(whose, round(rng.uniform(low, high), 1))


def _sever(_whose: Subject, _rng: Random) -> Action:
    return say.sever(Subject.POSTGRES)


def _always(action: Action) -> Callable[[Subject, Random], Action]:
    return lambda _whose, _rng: action


GUARD, SCHEDULER, SERVER = (Subject.GUARD,), (Subject.ORCHESTRATOR,), (Subject.SERVER,)
FAILURES = ("backend_error", "timeout")
LONG = _freeze(18, 40)
"""Longer than a claim and a lease live."""
SHORT = _freeze(2, 12)

_ALL = (
    # Workers die with claimed, answered or unstored calls.
    Point("kill-at-tick", WORKERS, "takes a tick", _kill, stands_for=("P4",)),
    Point("kill-before-ack", WORKERS, "acknowledges a tick", _kill, stands_for=("P3",)),
    Point("kill-after-claim", WORKERS, "after claim", _kill, stands_for=("P1",)),
    Point("kill-before-answer", WORKERS, "before answer", _kill, stands_for=("P2",)),
    Point("kill-after-answer", WORKERS, "after answer", _kill, stands_for=("P3",)),
    Point("kill-after-advance", WORKERS, "after advance", _kill, stands_for=("P3",)),
    Point("kill-before-end", (), "before end", _kill, most=1),
    # They freeze, and wake when the world has gone on.
    Point("freeze-before-answer", WORKERS, "before answer", LONG, most=2, stands_for=("P6",)),
    Point("freeze-before-advance", WORKERS, "before advance", SHORT, most=2),
    Point(
        "starve-renewals",
        WORKERS,
        "after claim",
        lambda who, rng: say.slow(who, round(rng.uniform(20, 40), 1)),
        stands_for=("T4",),
    ),
    # Connections to the database break, before or after what went over them happened.
    Point("cut-after-claim", WORKERS, "after claim", _sever, stands_for=("D2",)),
    Point("cut-after-answer", WORKERS, "after answer", _sever, stands_for=("D2",)),
    Point("cut-after-decision", SCHEDULER, "after decision", _sever, most=2, stands_for=("D2",)),
    Point("cut-after-state", GUARD, "after state", _sever, most=6, stands_for=("D2",)),
    Point(
        "postgres-away",
        (),
        "after answer",
        lambda _w, rng: say.part(Subject.POSTGRES, round(rng.uniform(1, 8), 1)),
        stands_for=("D1",),
    ),
    # The guard, in each state of the flip.
    *(
        Point(f"kill-guard-{state}", GUARD, state.value, _kill, most=2, stands_for=("P8",))
        for state in FlipState
        if state not in (FlipState.QUARANTINED, FlipState.CLOSED)
    ),
    Point("freeze-guard-open", GUARD, "open", LONG, most=2),
    # The scheduler decides once, dead or alive.
    Point("kill-before-decision", SCHEDULER, "before decision", _kill, most=2, stands_for=("P9",)),
    Point("kill-after-decision", SCHEDULER, "after decision", _kill, most=2, stands_for=("P9",)),
    Point("freeze-before-decision", SCHEDULER, "before decision", SHORT, most=2),
    # The hop to the guard.
    Point("chunk-lost", WORKERS, "sends a chunk", lambda who, _rng: say.misbehave(Subject.GUARD, "does not accept")),
    Point("stream-broken", WORKERS, "receives a completion", lambda who, _rng: say.misbehave(Subject.GUARD, "resets")),
    # Model servers.
    Point("server-dies-in-call", SERVER, "in a call", _kill, stands_for=("P10",)),
    Point("server-dies-in-load", SERVER, "in a load", _kill, most=2, stands_for=("P10",)),
    Point(
        "server-fails",
        SERVER,
        "in a call",
        lambda _w, rng: say.misbehave(Subject.SERVER, f"{rng.randint(1, 4)} {rng.choice(FAILURES)}"),
        stands_for=("B1",),
    ),
    Point(
        "server-away",
        SERVER,
        "in a call",
        lambda _w, rng: say.part(Subject.SERVER, round(rng.uniform(1, 90), 1)),
        stands_for=("B22",),
    ),
    Point(
        "search-away",
        (Subject.JUDGE,),
        "after claim",
        lambda _w, rng: say.part(Subject.RETRIEVER, round(rng.uniform(1, 90), 1)),
        stands_for=("B23",),
    ),
    Point(
        "server-hangs", SERVER, "in a call", _always(say.misbehave(Subject.SERVER, "hangs")), most=2, stands_for=("B2",)
    ),
    Point(
        "server-survives-stop",
        GUARD,
        "open",
        _always(say.misbehave(Subject.SERVER, "survives its stop")),
        most=1,
        stands_for=("B10",),
    ),
    Point(
        "memory-lags",
        GUARD,
        "open",
        lambda _w, rng: say.lag(Subject.VRAM, round(rng.uniform(1, 30), 1)),
        most=1,
        stands_for=("B16",),
    ),
    Point("memory-hidden", GUARD, "open", _always(say.hide(Subject.NVML)), most=2, stands_for=("B17",)),
    Point("memory-taken", GUARD, "open", _always(say.take(Subject.VRAM, 96.0)), most=2, stands_for=("B15",)),
    # Redis.
    Point("redis-flushed", (), "after claim", _always(say.flush(Subject.REDIS)), stands_for=("R2",)),
    Point(
        "redis-away",
        (),
        "lease write",
        lambda _w, rng: say.part(Subject.REDIS, round(rng.uniform(5, 40), 1)),
        most=6,
        stands_for=("R4",),
    ),
    Point(
        "lease-write-lost",
        (),
        "lease write",
        _always(say.misbehave(Subject.REDIS, "loses writes")),
        most=6,
        stands_for=("R6",),
    ),
    Point("ticks-dropped", (), "after advance", _always(say.drop(Subject.TICKS, 2)), most=2, stands_for=("Q3",)),
    Point("ticks-doubled", (), "after advance", _always(say.double(Subject.TICKS, 5)), most=2, stands_for=("Q1", "Q4")),
    Point("ticks-late", (), "after advance", _always(say.reorder(Subject.TICKS)), most=2, stands_for=("Q2",)),
    # Clocks.
    Point(
        "database-clock-leaps",
        (),
        "after claim",
        lambda _w, rng: say.jump(Subject.CLOCK, rng.choice((60, 3600))),
        stands_for=("T3",),
    ),
    Point(
        "host-clock-leaps",
        GUARD,
        "open",
        lambda _w, rng: say.jump(Subject.CLOCK, rng.choice((60, 3600))),
        most=2,
        stands_for=("T1",),
    ),
    # Users.
    Point("job-cancelled", (), "after answer", _always(say.cancel(Subject.JOB)), stands_for=("C1",)),
    Point("job-paused", (), "after answer", lambda _w, rng: say.freeze(Subject.JOB, round(rng.uniform(1, 15), 1))),
    Point("job-comes", (), "after answer", _always(say.submit(Subject.JOB, "other"))),
    Point(
        "call-kills-server",
        (),
        "after expansion",
        _always(say.submit(Subject.JOB, "poisonous")),
        most=1,
        stands_for=("S1",),
    ),
)
POINTS: Mapping[str, Point] = {point.name: point for point in _ALL}


# How often each fault point was hit, and whether that is often enough.

ENOUGH = 0.1
"""Hits of each fault point, per schedule that was asked for."""


class Coverage:
    """Of one run."""

    def __init__(self) -> None:
        self.schedules = 0
        self._hits: Counter[str] = Counter()
        self.schedules_of: Counter[str] = Counter()

    def add(self, hits: Counter[str], schedules: Counter[str], played: int) -> None:
        """The results of another part of the run."""
        self._hits.update(hits)
        self.schedules_of.update(schedules)
        self.schedules += played

    def missing(self, enough: float) -> list[str]:
        """Points that were hit too seldom."""
        return [name for name in POINTS if self._hits[name] < enough]

    def table(self) -> Iterator[str]:
        """A line a point: the seldom ones first."""
        width = max(map(len, POINTS))
        yield f"{'fault point':<{width}}  hits  schedules"
        for name in sorted(POINTS, key=lambda name: (self._hits[name], name)):
            yield f"{name:<{width}}  {self._hits[name]:>4}  {self.schedules_of[name]:>9}"


# Results of the simulator for the faults of the catalogue, in `docs/reference/faults.md`.

ITSELF = "tests/simulation/__main__.py"
"""Whose sights these are."""
SEEN = "in virtual time: every job ended, with no loss, duplicate or overlap"


def ids_of(points: Iterable[str]) -> set[str]:
    """The ids that fault points stand for."""
    return {id_ for name in points for id_ in POINTS[name].stands_for}


def record_sights(schedules: Counter[str]) -> None:
    """Store the results of a run without a violation; `schedules` counts by id the schedules that a fault struck."""
    fresh = {Place(id_, SIMULATOR, ITSELF): make_sight(id_, schedules[id_]) for id_ in sorted(ids_of(POINTS))}
    report.write_sights(report.merge_sights(report.read_sights(), fresh))
    report.write_page()


def make_sight(id_: str, schedules: int) -> Sight | None:
    """Return the record of a fault; None if it struck in no schedule."""
    if not schedules:
        return None
    points = [point for point in POINTS.values() if id_ in point.stands_for]
    produced = [f"simulated: {choose(point, Random(0))}" for point in points]
    return Sight(produced=produced, notes=[SEEN], figures={"schedules of the simulator": schedules})
