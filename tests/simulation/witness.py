"""Who was there all the time: knows when something was committed, and so who should have known of it."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from shared.plugins.loading import encode_usable_pins
from shared.runtime.queue import READY
from tests.simulation.link import DIALECT

if TYPE_CHECKING:
    from tests.simulation.world import World

LOOKED_S = 1.1
"""Longer than anybody takes from a commit to the look that belongs to it: two operations."""
WAITED_FOR = """
    SELECT t.call_id FROM steps t JOIN samples s ON s.id = t.sample_id AND t.position = s.position - 1
    WHERE s.id = $1"""


class Witness:
    """Of one schedule."""

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
        """Somebody sweeps up samples that lack no reply: only who died may have left one, or who is about to look."""
        if self._world.events or self._world.plan.apart:
            return
        latest = self._world.loop.time() - LOOKED_S
        for sample in samples:
            calls = [row[0] for row in self._world.store.watch.rows(WAITED_FOR, sample)]
            if all(self._answered_at.get(call, self._advanced_at) < latest for call in calls):
                self._world.violated(f"lost wake-up: sample {sample} lacked no reply, and nobody made it ready")

    def drained(self, since: float) -> None:
        """On a picture of that moment it is decided that nothing is left that may give the resident model work."""
        unchanged = self._wrote_at < since and not self._world.users.busy
        if unchanged and self._world.store.watch.rows(str(READY.compile(dialect=DIALECT)), encode_usable_pins())[0][0]:
            self._world.violated("flip: a sample is ready that may give the resident model work")
