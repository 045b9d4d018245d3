"""The guard, one per device, is the only process that reaches the model servers: it admits and answers calls.

A chunk of calls is admitted only under the open epoch. No `await` is between that check and the count of calls in
flight, so a drain cannot overlook a chunk that passed the check.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping

import msgspec
from sqlalchemy import text

from mathrag.errors import Conflict
from services.guard.drivers.ports import Driver, ModelServer
from services.guard.memory import GuardClock
from shared.calls import Completion, End, ModelAnswer, ModelCall, RunRequest
from shared.models.chat import ChatFailed, ServerAway, ServerUnreached
from shared.replies import FailureKind
from shared.storage.database import Database
from shared.telemetry import traces

RELEASED = ModelAnswer(end=End.RELEASED)
"""The answer for a call that reached no model server or was aborted: it goes back to the queue uncharged."""


class StaleEpoch(Conflict):
    """The chunk's epoch is not the open one; nothing was sent to a model."""

    kind = "stale_epoch"


class ServedModel:
    """A model server with its slots; `name` and `driver` are those of the settings.

    `call_timeout_s` bounds a whole call: a server that sends a byte now and then would never run into a read timeout.
    """

    def __init__(
        self,
        server: ModelServer,
        parallel: int,
        call_timeout_s: float | None = None,
        *,
        name: str = "",
        driver: str = "",
    ) -> None:
        self.server = server
        self.call_timeout_s = call_timeout_s
        self.name = name
        self.driver = driver
        self.slots = asyncio.Semaphore(parallel)
        self.running = 0


class Guard:
    """Admission, execution and receipts of model calls on one device."""

    def __init__(self, device: str, clock: GuardClock) -> None:
        self.device = device
        self.clock = clock
        self.epoch: int | None = None
        """The open epoch; None while nothing may run."""
        self._residents: dict[int, ServedModel] = {}
        self._remote: dict[int, ServedModel] = {}
        self._in_flight = 0
        self._idle_since = float("-inf")
        """When the last leased call in flight ended, in seconds of the event loop."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._running: set[asyncio.Task[Completion]] = set()

    def open(self, epoch: int, residents: Mapping[int, ServedModel]) -> None:
        """Admit calls of `epoch` for these models from now on."""
        self._residents = dict(residents)
        self.epoch = epoch

    def close(self) -> None:
        """Admit no further leased calls; those in flight continue."""
        self.epoch = None

    def serve_remote(self, model_id: int, resident: ServedModel) -> None:
        """Admit calls of a model that needs no lease, in any epoch."""
        self._remote[model_id] = resident

    @property
    def models(self) -> tuple[int, ...]:
        """Ids of the resident models, while an epoch is open."""
        return tuple(self._residents)

    @property
    def in_flight(self) -> int:
        """Number of leased calls that were admitted and have not ended."""
        return self._in_flight

    @property
    def idle_s(self) -> float:
        """Return the seconds since the last leased call ended; 0 while one is in flight."""
        return 0.0 if self._in_flight else asyncio.get_running_loop().time() - self._idle_since

    async def wait_idle(self) -> None:
        """Return when no leased call is in flight."""
        await self._idle.wait()

    async def cancel(self) -> None:
        """Abort the leased calls in flight, which go back uncharged, and return when none is left."""
        await asyncio.sleep(0)  # a task that is cancelled before it begins would not report its call as released
        for task in tuple(self._running):
            task.cancel()
        await self.wait_idle()

    async def run(self, request: RunRequest) -> AsyncIterator[list[Completion]]:
        """Yield an empty list once the chunk is admitted, then lists of its completions as they end. Closing the
        generator aborts the rest.

        Raises:
            StaleEpoch: the chunk was refused, and nothing of it was sent.
        """
        leased = self._admit(request)
        tasks = [asyncio.create_task(self._complete(call, request.epoch)) for call in request.calls]
        for call, task in zip(request.calls, tasks, strict=True):
            if call in leased:
                self._running.add(task)
                # Not in the `finally`: a disconnect cancels every await of this generator.
                task.add_done_callback(self._end_call)
        try:
            yield []
            pending = set(tasks)
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                yield [task.result() for task in done]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _admit(self, request: RunRequest) -> list[ModelCall]:
        """Check the epoch and count the leased calls, without an `await` in between; return the leased calls."""
        far = [self._remote[call.model_id] for call in request.calls if call.model_id in self._remote]
        if lost := next((resident.name for resident in far if not resident.server.alive), None):
            raise StaleEpoch(f"the server of {lost!r} no longer serves that model")
        leased = [call for call in request.calls if call.model_id not in self._remote]
        if leased and (self.epoch is None or request.epoch != self.epoch):
            raise StaleEpoch(f"epoch {request.epoch} is not open; the device's epoch is {self.epoch or 'none'}")
        foreign = next((call.model_id for call in leased if call.model_id not in self._residents), None)
        if foreign is not None:
            raise StaleEpoch(f"model {foreign} is not resident in epoch {self.epoch}")
        self._in_flight += len(leased)
        if leased:
            self._idle.clear()
        return leased

    def _end_call(self, task: "asyncio.Task[Completion]") -> None:
        self._running.discard(task)
        self._in_flight -= 1
        if self._in_flight == 0:
            self._idle_since = asyncio.get_running_loop().time()
            self._idle.set()

    async def _complete(self, call: ModelCall, epoch: int | None) -> Completion:
        resident = self._remote.get(call.model_id)
        epoch = None if resident else epoch
        resident = resident or self._residents[call.model_id]
        started, concurrency = self.clock.now(), 0
        try:
            async with resident.slots:
                resident.running += 1
                started, concurrency = self.clock.now(), resident.running
                try:
                    answer = await _answer_traced(resident, call)
                finally:
                    resident.running -= 1
        except asyncio.CancelledError:
            # The guard has aborted the call, or the client has disconnected and will not read this.
            answer = _end_unanswered(resident.server) if concurrency else RELEASED
        ended = self.clock.now()
        # The answer once a later check has found the verified model, else RELEASED; the slot is already free.
        if answer.end is End.ANSWERED:
            try:
                answer = answer if await resident.server.confirm() else RELEASED
            except asyncio.CancelledError:  # as above; the call had ended, so it is not a suspect
                answer = RELEASED
        return Completion(
            id=call.id, started_at=started, ended_at=ended, device=self.device, epoch=epoch, concurrency=concurrency,
            **msgspec.structs.asdict(answer),
        )  # fmt: skip


async def _answer_traced(resident: ServedModel, call: ModelCall) -> ModelAnswer:
    if not traces.is_on():
        return await _answer(resident, call)
    with traces.open_span(call, model=resident.name, backend=resident.driver, concurrency=resident.running) as span:
        answer = await _answer(resident, call)
        traces.record_answer(span, call, answer)
        return answer


async def _answer(resident: ServedModel, call: ModelCall) -> ModelAnswer:
    if not resident.server.alive:  # it died while this call waited for a slot, or before it came
        return RELEASED
    try:
        async with asyncio.timeout(resident.call_timeout_s):
            # Servers of plug-ins have no such parameter.
            constraint = {"choices": call.choices} if call.choices else {}
            return await resident.server.complete(call.prompt, call.decoding, call.seed, call.logprobs, **constraint)
    except TimeoutError:
        return ModelAnswer(failure=FailureKind.TIMEOUT, detail=f"no answer within {resident.call_timeout_s} s")
    except ChatFailed as failed:
        if failed.kind is FailureKind.CONNECTION and not await _is_still_alive(resident.server):
            return RELEASED if isinstance(failed, ServerUnreached) else _end_unanswered(resident.server)
        if isinstance(failed, ServerAway):
            what = f"the server of model {resident.name!r}"
            return ModelAnswer(end=End.WAITS, what=what, detail=failed.detail[:500])
        return ModelAnswer(failure=failed.kind, detail=failed.detail[:500])
    except Exception as error:  # noqa: BLE001 - one strange answer must not break off the whole chunk
        return ModelAnswer(failure=FailureKind.BACKEND_ERROR, detail=repr(error)[:500])


def _end_unanswered(server: ModelServer) -> ModelAnswer:
    """Return the ending of a call that got no answer: a suspect if its server died, since the call may be the cause."""
    return ModelAnswer(end=End.LAPSED, detail="the model server died") if server.died else RELEASED


async def _is_still_alive(server: ModelServer) -> bool:
    """Tell whether the server is alive, 0.5 s after a lost connection: its exit status is seen later than the loss."""
    try:
        await asyncio.wait_for(server.wait_exited(), 0.5)
    except TimeoutError:
        return server.alive
    return False


POLL_S = 2.0
"""Between two queries of the queue while it holds no calls of another model."""

# In the policy's order: the judge's models first. It reads one index entry per model and lane, however long the queue.
NEXT = text("""
    SELECT m.name FROM models m CROSS JOIN unnest(ARRAY['judge', 'generate']) WITH ORDINALITY l(lane, place)
    WHERE m.served AND m.needs_lease AND m.device = :device AND NOT m.id = ANY(:resident)
      AND EXISTS (SELECT 1 FROM queue q WHERE q.lane = l.lane AND q.model_id = m.id)
    ORDER BY l.place, m.id LIMIT 1""")

_log = logging.getLogger(__name__)


class Warmer:
    """Reads the next model's files into the page cache while the present residency works, for one device.

    A flip then need not wait for the disk. This happens at most once per residency, and stops when a flip begins.
    """

    def __init__(self, database: Database, guard: Guard, drivers: Mapping[str, Driver]) -> None:
        self._database = database
        self._guard = guard
        self._drivers = drivers
        self._epoch: int | None = None
        """The last epoch in which something was read ahead."""
        self._reading: asyncio.Task[None] | None = None
        self._polled_at = float("-inf")

    async def poll(self) -> None:
        """Begin to read if another model has calls, stop if a flip has begun; cheap enough to be called often."""
        if self._reading is not None and self._guard.epoch != self._epoch:
            await self.stop()
        if self._guard.epoch in (None, self._epoch) or not self._guard.models:
            return
        now = asyncio.get_running_loop().time()
        if now - self._polled_at < POLL_S:
            return
        self._polled_at = now
        epoch = self._guard.epoch
        async with self._database.statement() as connection:
            values = {"device": self._guard.device, "resident": list(self._guard.models)}
            name: str | None = (await connection.execute(NEXT, values)).scalar()
        if name is not None and name in self._drivers and self._guard.epoch == epoch:
            self._epoch = epoch
            self._reading = asyncio.create_task(self._warm(name))

    async def stop(self) -> None:
        """Stop reading and return when the disk is free again."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait((self._reading,))
            self._reading = None

    async def _warm(self, name: str) -> None:
        try:
            await self._drivers[name].warm()
        except Exception:  # noqa: BLE001 - a load without the cache is only slower
            _log.exception("%s was not read ahead", name)
