"""Redis as the lease and the ticks use it, in memory and in virtual time; and Celery's queues on top of it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError

from shared import queue
from shared.calls import Lane
from shared.lease import lease
from tests.simulation.actor import current

if TYPE_CHECKING:
    from tests.simulation.world import World


class RedisServer:
    """Keys that expire, and a queue of ticks a lane."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self.away = False
        self.deaf = False
        """It says that it has written, and has not: a replica takes over that lacks it."""
        self._hashes: dict[str, dict[str, str]] = {}
        self._until: dict[str, float] = {}
        self.ticks: dict[Lane, asyncio.Queue[None]] = {lane: asyncio.Queue() for lane in Lane}
        self.copies = 1
        self.every = 0
        """One of this many ticks is lost; 0: none."""
        self.latest_s = 0.0
        """Maximum delay of a tick, so that others overtake it."""
        self._sent = 0

    def flush(self) -> None:
        """Forget everything."""
        self._hashes.clear()
        self._until.clear()
        for lane in self.ticks:
            self.trim(lane, 0)

    def trim(self, lane: Lane, most: int) -> None:
        """Keep this many ticks of a lane."""
        while self.ticks[lane].qsize() > most:
            self.ticks[lane].get_nowait()

    def get(self, key: str) -> dict[str, str]:
        """What is there and has not expired."""
        if self._until.get(key, 0.0) <= self._world.loop.time():
            self.delete(key)
        return dict(self._hashes.get(key, {}))

    def ttl_ms(self, key: str) -> int:
        """How long it still lives; -2, as of Redis, if it is not there."""
        return int(1000 * (self._until[key] - self._world.loop.time())) if self.get(key) else -2

    def put(self, key: str, fields: Mapping[str, str], ttl_s: float) -> None:
        """Write with this lifetime."""
        if not self.deaf:
            self._hashes[key] = {**self.get(key), **fields}
            self._until[key] = self._world.loop.time() + ttl_s

    def delete(self, key: str) -> None:
        """Remove it."""
        self._hashes.pop(key, None)
        self._until.pop(key, None)

    def send(self, lane: Lane) -> None:
        """A tick is on its way; it may get lost, arrive several times, or late."""
        self._sent += 1
        if self.every and self._sent % self.every == 0:
            self._world.hit("ticks")
            return
        for _ in range(self.copies):
            late = self._world.rng.uniform(0.0, self.latest_s)
            self._world.loop.call_later(late, self.ticks[lane].put_nowait, None)
        if self.copies > 1 or self.latest_s:
            self._world.hit("ticks")


class ActorRedis:
    """The client of one process: the few commands that our code uses."""

    def __init__(self) -> None:
        self._actor = current()
        self._server = self._actor.world.redis

    def register_script(self, script: str) -> Any:
        """The one script there is."""
        if script != lease.PUBLISH:
            raise NotImplementedError("the simulated Redis knows the lease's script only")
        return self._publish

    async def _publish(self, keys: Sequence[str], args: Sequence[Any]) -> int:
        await self.reach("lease write")
        epoch, phase, models, ttl, step = args
        held = self._server.get(keys[0])
        before = (int(held.get("epoch", 0)), int(held.get("step", 0)))
        if (int(epoch), int(step)) < before:
            return 0
        fields = {"epoch": str(epoch), "phase": phase, "models": models, "step": str(step)}
        self._server.put(keys[0], fields, ttl)
        return 1

    async def ping(self) -> bool:
        """Whether it answers."""
        await self.reach()
        return True

    async def get(self, key: str) -> str | None:
        """What `set` has written."""
        await self.reach()
        return self._server.get(key).get("value")

    async def set(self, key: str, value: object, *, nx: bool = False, ex: float) -> bool | None:
        """Write it; with `nx` only if it is not there."""
        await self.reach()
        if nx and self._server.get(key):
            return None
        self._server.put(key, {"value": str(value)}, ex)
        return True

    async def delete(self, key: str) -> None:
        """Remove it."""
        await self.reach()
        self._server.delete(key)

    def pipeline(self, *, transaction: bool) -> "Pipeline":
        """Several commands at once."""
        if transaction:
            raise NotImplementedError("the simulated Redis knows no transactions")
        return Pipeline(self, self._server)

    async def aclose(self) -> None:
        """Nothing is open."""

    async def reach(self, moment: str | None = None) -> None:
        """Go there, if it can be reached."""
        await self._actor.gate()
        await self._actor.world.latency()
        if moment:
            await self._actor.passes(moment)
        await self._actor.gate()
        if self._server.away:
            raise RedisConnectionError("simulated: Redis is away")


class Pipeline:
    """Commands that go together."""

    def __init__(self, redis: ActorRedis, server: RedisServer) -> None:
        self._redis = redis
        self._server = server
        self._commands: list[Callable[[], object]] = []
        self._moment: str | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Nothing is open."""

    def hgetall(self, key: str) -> None:
        """All fields: only a lease is read so."""
        self._moment = "lease read"
        self._commands.append(lambda: self._server.get(key))

    def pttl(self, key: str) -> None:
        """How long it still lives."""
        self._commands.append(lambda: self._server.ttl_ms(key))

    def delete(self, key: str) -> None:
        """Remove it."""
        self._commands.append(lambda: self._server.delete(key))

    def ltrim(self, key: str, first: int, last: int) -> None:
        """Keep the newest ticks of a lane."""
        lane = Lane(key.removeprefix(queue.KEY_PREFIX))
        self._commands.append(lambda: self._server.trim(lane, last - first + 1))

    async def execute(self) -> list[object]:
        """Do them all; what each answers."""
        await self._redis.reach(self._moment)
        return [command() for command in self._commands]


class ActorCelery:
    """Sends ticks."""

    def __init__(self) -> None:
        self._server = current().world.redis

    def send_task(self, _name: str, **message: Any) -> None:
        """Into the lane's queue."""
        if self._server.away:
            raise OperationalError("simulated: Redis is away")
        self._server.send(Lane(message["queue"]))
