"""The checks during and after any schedule: the real audit, and checks that only the simulation can make."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy import Row, text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared import audit
from shared.plugins.loading import encode_usable_pins
from shared.runtime.queue import READY
from tests.faults.vocabulary import Subject
from tests.simulation.actor import Actor
from tests.simulation.device import AWAY
from tests.simulation.link import DIALECT
from tests.simulation.sessions import ActorDatabase

if TYPE_CHECKING:
    from tests.simulation.world import World

LOOKED_S = 1.1
"""Longer than anybody takes from a commit to the look that belongs to it: two operations."""
WAITED_FOR = """
    SELECT t.call_id FROM steps t JOIN samples s ON s.id = t.sample_id AND t.position = s.position - 1
    WHERE s.id = $1"""


class Witness:
    """Was there all the time: knows when something was committed, and so who should have known of it."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._wrote_at = self._advanced_at = 0.0
        self._answered_at: dict[int, float] = {}
        """When replies were committed, by call id."""

    def saw(self, word: str, parameters: Mapping[str, Any]) -> None:
        """A statement that changed something is committed."""
        self._wrote_at = self._world.loop.time()
        if word == "answer":
            self._answered_at |= dict.fromkeys(parameters["calls"], self._wrote_at)
        if word == "advance":
            self._advanced_at = self._wrote_at

    def overlooked(self, samples: Collection[int]) -> None:
        """Check swept samples that lack no reply; only a dead process or one about to check may leave one."""
        if self._world.events or self._world.plan.apart:
            return
        latest = self._world.loop.time() - LOOKED_S
        for sample in samples:
            calls = [row[0] for row in self._world.store.watch.rows(WAITED_FOR, sample)]
            if all(self._answered_at.get(call, self._advanced_at) < latest for call in calls):
                self._world.violated(f"lost wake-up: sample {sample} lacked no reply, and no process made it ready")

    def drained(self, since: float) -> None:
        """Check the decision, on a snapshot of that moment, that no work for the resident model is left."""
        unchanged = self._wrote_at < since and not self._world.users.busy
        if unchanged and self._world.store.watch.rows(str(READY.compile(dialect=DIALECT)), encode_usable_pins())[0][0]:
            self._world.violated("flip: a sample is ready that may give the resident model work")


if TYPE_CHECKING:
    from tests.simulation.world import World

EXECUTED = text("""
    SELECT c.id, c.key, (SELECT count(*) FROM attempts a WHERE a.call_id = c.id AND a.outcome IN ('lapsed', 'poisoned'))
        AS lapses
    FROM calls c JOIN models m ON m.id = c.model_id AND m.needs_lease WHERE c.id = ANY(:calls)""")
LEFT = text("SELECT call_id FROM queue ORDER BY 1")
MINE = text("""
    SELECT DISTINCT t.call_id FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id
    WHERE j.public_id = ANY(:jobs)""")
# Only calls that these jobs queued: the history of a reused reply in an earlier schedule does not count.
IN_VAIN = text("""
    SELECT a.id FROM attempts a WHERE NOT a.accepted AND a.call_id IN (
        SELECT t.call_id FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id
        WHERE j.public_id = ANY(:jobs) AND t.created) ORDER BY 1""")
CHARGED = text("""
    SELECT id FROM attempts WHERE outcome = 'unavailable' OR convert_from(reply, 'UTF8') LIKE :away ORDER BY 1""")
TWICE = text("SELECT call_id FROM attempts WHERE accepted AND call_id = ANY(:calls) GROUP BY 1 HAVING count(*) > 1")


# Objects that the simulation adds to the schema: `store.VIRTUAL_TIME` and `store.BETWEEN_ROWS`.
BETWEEN_ROWS = "CREATE TRIGGER between_rows BEFORE INSERT ON public.calls FOR EACH ROW EXECUTE FUNCTION between_rows()"
OURS = {
    f"trigger on calls (O): {BETWEEN_ROWS}",
    *(f"setting of {role}: search_path=public, sim, pg_catalog" for role in ("mathrag_app", "mathrag_owner")),
}


async def after(world: "World") -> None:
    """Note every violation with the world."""
    database = ActorDatabase(Actor(world, Subject.EVERYTHING))
    for job in world.users.jobs:
        for violation in await audit.check(database, job):
            if OURS.issuperset(violation.rows):
                continue
            world.violated(f"audit {violation.invariant}: {violation.message} {violation.rows}")
    async with database.transaction() as connection:
        jobs = {"jobs": world.users.jobs}
        calls = {"calls": list((await connection.execute(MINE, jobs)).scalars())}
        if left := list((await connection.execute(LEFT)).scalars()):
            world.violated(f"left in the queue: calls {left}")
        if twice := list((await connection.execute(TWICE, calls)).scalars()):
            world.violated(f"two accepted replies: calls {twice}")
        await _nobody_charged(world, connection)
        if not world.events and (vain := list((await connection.execute(IN_VAIN, jobs)).scalars())):
            world.violated(f"wasted without a fault: attempts {vain}")
        for row in await connection.execute(EXECUTED, calls):
            _done_twice(world, row)


async def _nobody_charged(world: "World", connection: AsyncConnection) -> None:
    """What waited for something that was away has no attempt that says so."""
    if charged := list((await connection.execute(CHARGED, {"away": f"%{AWAY}%"})).scalars()):
        world.violated(f"charged for an outage: attempts {charged}")


def _done_twice(world: "World", row: Row[tuple[int, bytes, int]]) -> None:
    """A call runs to its end twice only if it was claimed when a fault struck, or lapsed because of one."""
    ran = world.machine.executed[int.from_bytes(row.key[:4]) >> 1]
    if ran > 1 + world.in_flight[row.id] + row.lapses:
        world.violated(f"work done twice: call {row.id} ran {ran} times, in flight at {world.in_flight[row.id]} faults")
