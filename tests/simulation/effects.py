"""How the simulator does every word of the vocabulary that its fault points use."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from shared.replies import FailureKind
from tests.faults.vocabulary import Action, Subject
from tests.simulation.actor import Actor
from tests.simulation.device import ModelServer
from tests.simulation.plan import JobPlan
from tests.simulation.sessions import Session

if TYPE_CHECKING:
    from tests.simulation.world import World

LASTS_S = 30.0
"""Duration of a fault that lasts until it is relieved."""


class Effects:
    """The back end's verbs. `actor` is the process at the moment, `thing` the object that it handles."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def perform(self, action: Action, actor: Actor, thing: Any) -> str | None:
        """Have it happen now, or from now on: then the word under which it is said that it did (see `World.hit`)."""
        verb: Callable[[Action, Actor, Any], str | None] = getattr(self, f"_{action.verb}")
        return verb(action, actor, thing)

    def _kill(self, _action: Action, actor: Actor, thing: Any) -> None:
        if isinstance(thing, ModelServer):
            thing.die()
        else:
            actor.kill()

    def _freeze(self, action: Action, actor: Actor, _thing: Any) -> None:
        seconds = float(action.amount)
        if action.subject is Subject.JOB:
            self._world.users.pause(seconds)
        else:
            actor.freeze(seconds)
        self._world.until(seconds)

    def _sever(self, _action: Action, _actor: Actor, session: Session) -> None:
        session.broken = True

    def _part(self, action: Action, _actor: Actor, _thing: Any) -> None:
        seconds = float(action.amount)
        away = {
            Subject.REDIS: (self._world.redis, "away"),
            Subject.RETRIEVER: (self._world, "search_away"),
            Subject.SERVER: (self._world.machine, "refuses"),
        }
        if action.subject in away:
            self._set(*away[action.subject], value=True, seconds=seconds, after=False)
            return
        for session in self._world.sessions:
            session.broken = True
        self._set(self._world, "postgres_away", value=True, seconds=seconds, after=False)

    def _flush(self, _action: Action, _actor: Actor, _thing: Any) -> None:
        self._world.redis.flush()

    def _drop(self, action: Action, _actor: Actor, _thing: Any) -> str:
        self._set(self._world.redis, "every", value=action.amount, seconds=LASTS_S, after=0)
        return "ticks"

    def _double(self, action: Action, _actor: Actor, _thing: Any) -> str:
        self._set(self._world.redis, "copies", value=action.amount, seconds=LASTS_S, after=1)
        return "ticks"

    def _reorder(self, _action: Action, _actor: Actor, _thing: Any) -> str:
        self._set(self._world.redis, "latest_s", value=3.0, seconds=LASTS_S, after=0.0)
        return "ticks"

    def _jump(self, action: Action, actor: Actor, _thing: Any) -> None:
        if actor.subject is Subject.GUARD:
            self._world.wall.offset_s += float(action.amount)
        else:
            self._world.database_offset_s += float(action.amount)

    def _slow(self, action: Action, actor: Actor, _thing: Any) -> None:
        """Renewals do not come through, while calls take long."""
        seconds = float(action.amount)
        self._world.starved[actor.subject] = self._world.loop.time() + seconds
        self._set(self._world.machine, "slowness_s", value=seconds / 3, seconds=seconds, after=0.0)

    def _keep(self, _action: Action, _actor: Actor, _thing: Any) -> str:
        self._for_a_while("keeps", value=True)
        return "memory"

    def _lag(self, action: Action, _actor: Actor, _thing: Any) -> str:
        self._for_a_while("lag_s", value=action.amount)
        return "memory"

    def _take(self, action: Action, _actor: Actor, _thing: Any) -> None:
        self._for_a_while("foreign_mib", value=action.amount)

    def _hide(self, _action: Action, _actor: Actor, _thing: Any) -> None:
        self._for_a_while("hidden", value=True)

    def _misbehave(self, action: Action, actor: Actor, _thing: Any) -> str | None:
        how = str(action.amount)
        if action.subject is Subject.GUARD:
            self._world.hops_to_break.add(actor)
            return None
        if action.subject is Subject.REDIS:
            self._set(self._world.redis, "deaf", value=True, seconds=LASTS_S, after=False)
            return None
        if how in ("hangs", "survives its stop"):
            word = "hangs" if how == "hangs" else "stubborn"
            self._for_a_while(word, value=True)
            return word
        count, _, what = how.partition(" ")
        self._world.machine.failures += [FailureKind(what)] * int(count)
        return "failure"

    def _cancel(self, _action: Action, _actor: Actor, _thing: Any) -> None:
        self._world.users.cancel()

    def _submit(self, action: Action, _actor: Actor, _thing: Any) -> None:
        poisonous = action.amount == "poisonous"
        self._world.users.submit(JobPlan("one-round" if poisonous else "two-rounds", 1, poisonous=poisonous))

    def _for_a_while(self, what: str, *, value: Any) -> None:
        """On the device; afterwards everything about it is as before."""
        setattr(self._world.machine, what, value)
        self._world.later(LASTS_S, self._world.machine.relieve)
        self._world.until(LASTS_S)

    def _set(self, owner: Any, name: str, *, value: Any, seconds: float, after: Any) -> None:
        setattr(owner, name, value)
        self._world.later(seconds, lambda: setattr(owner, name, after))
        self._world.until(seconds)


__all__ = ["Effects"]
