"""Execute claimed chunks of calls; each call is answered, released, or charged with a failure."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from datetime import UTC, datetime

from sqlalchemy.exc import SQLAlchemyError

from shared.contracts.replies import Failure, FailureKind
from shared.lease.guard_client import NotGranted, StreamBroken
from shared.redaction import redact
from shared.runtime.answers import AnsweredCall, Receipt
from shared.runtime.claims import Claim, ClaimedCall, Claims
from shared.runtime.execution import CallEnd, Executor, Lapse, Release, Wait
from shared.runtime.lapses import lapse
from shared.runtime.time_batches import batch_by_time
from shared.settings import Workers
from shared.storage.database import Database
from shared.storage.outages import is_passing, retry_through_outage
from shared.telemetry import logs

_log = logging.getLogger(__name__)


class ChunkProgress:
    """Progress that concurrent chunks report to their worker."""

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        """Set when a reply is committed or a call is released."""
        self.ready = 0
        """Samples that became ready since the worker's last advance."""
        self.sources_changed = False
        """Whether the worker's cached view of lease and queue is outdated."""


class Chunks:
    """Executes the chunks that one worker has claimed."""

    def __init__(
        self, database: Database, executors: Mapping[str, Executor], claims: Claims, *, name: str, limits: Workers
    ) -> None:
        self.progress = ChunkProgress()
        self._database = database
        self._executors = executors
        self._claims = claims
        self._name = name
        self._limits = limits

    async def run(self, claim: Claim, epoch: int | None) -> None:
        """Execute a chunk. Whatever happens, each of its calls is answered, released, or charged with a failure."""
        logs.bind(role=claim.calls[0].role, epoch=epoch, claim=str(claim.token))
        open_calls = {call.id for call in claim.calls}
        renewing = asyncio.create_task(self._renew(claim, open_calls))
        try:
            await self._execute(claim, claim.calls, epoch, open_calls)
        except NotGranted as refused:
            _log.info("chunk of %d not granted: %s", len(open_calls), refused)
            self.progress.sources_changed = True
            await self._claims.release(claim.token, sorted(open_calls))
        except StreamBroken as broken:
            _log.warning("chunk of %d broke off: %s", len(open_calls), broken)
            await self._lapse(claim, sorted(open_calls))
        except Exception as error:  # noqa: BLE001 - a defect of one chunk must not stop the others
            _log.exception("chunk of %d failed", len(open_calls))
            if is_passing(error):
                await self._claims.release(claim.token, sorted(open_calls))
            else:  # even their failures could not be stored
                await self._lapse(claim, sorted(open_calls))
        except asyncio.CancelledError:
            # The worker was told to stop: the executor aborted these calls, so they are not charged.
            await self._claims.release(claim.token, sorted(open_calls))
            raise
        finally:
            renewing.cancel()

    async def _execute(
        self, claim: Claim, calls: Sequence[ClaimedCall], epoch: int | None, open_calls: set[int]
    ) -> None:
        """Run calls of a chunk and remove them from `open_calls` as they end.

        If the executor fails, the two halves of the remaining calls run separately, so that a call that cannot be
        executed fails alone.
        """
        try:
            await self._stream(claim, calls, epoch, open_calls)
        except (NotGranted, StreamBroken):
            raise
        except Exception as error:
            if is_passing(error):  # an outage of the database is not a defect of the calls
                raise
            _log.exception("%d calls failed together", len(calls))
            problem = repr(error)
        else:
            return
        if len(calls) == 1:
            await self._fail(claim, {calls[0].id}, problem)
            open_calls.discard(calls[0].id)
            return
        left = [call for call in calls if call.id in open_calls]
        for half in (left[: len(left) // 2], left[len(left) // 2 :]):
            if half:
                await self._execute(claim, half, epoch, open_calls)

    async def _stream(
        self, claim: Claim, calls: Sequence[ClaimedCall], epoch: int | None, open_calls: set[int]
    ) -> None:
        executor = self._executors[calls[0].role]
        async with aclosing(batch_by_time(executor.run(calls, epoch), self._limits.window_ms / 1000)) as batches:
            async for batch in batches:
                answers = [each for each in batch if isinstance(each, AnsweredCall)]
                await self._commit(claim, answers)
                await self._give_back(claim, batch)
                if claim.tries and answers:
                    await self._claims.end_outage(claim.calls[0].model_id)
                    self.progress.sources_changed = True
                open_calls -= {each.call_id for each in batch}
                self.progress.changed.set()

    async def _commit(self, claim: Claim, answers: list[AnsweredCall]) -> None:
        if not answers:
            return
        committed = await self._claims.answer(claim.token, answers)
        self.progress.ready += committed.ready
        stale = {answer.call_id for answer in answers} - set(committed.calls)
        if stale:
            _log.warning("stale_result: calls %s were answered under a claim that had lapsed", sorted(stale))

    async def _fail(self, claim: Claim, calls: set[int], detail: str) -> None:
        """Charge calls that could not be executed; they are tried again and finally fail with `detail`."""
        now = datetime.now(UTC)
        failure = Failure(kind=FailureKind.BACKEND_ERROR, detail=redact(detail)[:500])
        receipt = Receipt(started_at=now, ended_at=now)
        await self._commit(
            claim, [AnsweredCall(call_id=call, reply=failure, receipt=receipt) for call in sorted(calls)]
        )

    async def _give_back(self, claim: Claim, batch: list[CallEnd]) -> None:
        released = [each.call_id for each in batch if isinstance(each, Release)]
        lapsed = [each.call_id for each in batch if isinstance(each, Lapse)]
        if released:
            await self._claims.release(claim.token, released)
        if lapsed:
            await self._lapse(claim, lapsed)
        await self._wait_for(claim, [each for each in batch if isinstance(each, Wait)])

    async def _wait_for(self, claim: Claim, waits: list[Wait]) -> None:
        if not waits:
            return
        _log.warning("%d calls wait for %s: %s", len(waits), waits[0].what, waits[0].said)
        self.progress.sources_changed = True
        calls = [each.call_id for each in waits]
        await self._claims.wait(claim.token, calls, claim.calls[0].model_id, waits[0].what, waits[0].said)

    async def _lapse(self, claim: Claim, calls: list[int]) -> None:
        await retry_through_outage(
            lambda: lapse(self._database, self._name, claim.token, calls), self._limits.claim_ttl_s
        )

    async def _renew(self, claim: Claim, open_calls: set[int]) -> None:
        """Renew the claim while the chunk runs; the event loop only waits for I/O, so this is never late.

        After an outage of the database the renewal happens at once, before the sweeper lapses late claims.
        """
        while True:
            await asyncio.sleep(self._limits.claim_ttl_s / 3)
            try:
                await retry_through_outage(
                    lambda: self._claims.renew(claim.token, sorted(open_calls)), self._limits.claim_ttl_s
                )
            except SQLAlchemyError as error:
                _log.warning("claim not renewed, trying again: %r", error)
