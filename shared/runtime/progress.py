"""A sample's progress during an advance: its replay, its recorded steps, and the steps to be written."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from shared.contracts.replies import Reply
from shared.pipelines.binding import Bound, RepeatedDraw, SampleBinder
from shared.runtime.jobs import JobSpec
from shared.runtime.replay import Replay, TooManyCalls

_DECODER: msgspec.json.Decoder[Reply] = msgspec.json.Decoder(Reply)


class StoredAnswer(NamedTuple):
    """An existing call with its accepted reply, as stored and as decoded; both None while it has none."""

    call_id: int
    raw: bytes | None
    reply: Reply | None
    error: str = ""
    """Why the stored reply cannot be decoded; empty if it can."""


def decode_answer(call_id: int, raw: bytes | None) -> StoredAnswer:
    """Decode a stored reply."""
    try:
        return StoredAnswer(call_id, raw, None if raw is None else _DECODER.decode(raw))
    except ValueError as error:
        return StoredAnswer(call_id, raw, None, str(error))


class NewStep(NamedTuple):
    """A step to be written."""

    position: int
    slot: int
    bound: Bound


class SampleProgress:
    """A ready sample's progress. `bound` holds the calls that its replay waits for, and is empty at its end."""

    def __init__(
        self, sample_id: int, job: JobSpec, repeat: int, recorded: int, replay: Replay[Any], place: int = 0
    ) -> None:
        self.sample_id = sample_id
        self.job = job
        self.replay = replay
        self.place = place
        """Where its calls stand in the queue; smaller ones are claimed first."""
        self.steps: list[NewStep] = []
        self.bound: tuple[Bound, ...] = ()
        self._binder = SampleBinder(job.binding, repeat)
        self._recorded = recorded
        self._record = hashlib.sha256()
        self._bind()

    @property
    def waits(self) -> bool:
        """Whether the pipeline waits for calls."""
        return bool(self.replay.calls)

    @property
    def record(self) -> bytes:
        """SHA-256 of all consumed keys and replies in order, which determine the sample's outcome."""
        return self._record.digest()

    def expects(self, keys: Sequence[bytes]) -> bool:
        """Tell whether the pipeline yields the recorded calls; if not, fail the sample as `replay_diverged`."""
        yielded = [bound.key for bound in self.bound]
        if yielded == list(keys):
            return True
        where = f"position {self.replay.position}: recorded {_abbreviate(keys)}, yielded {_abbreviate(yielded)}"
        self.replay.fail("replay_diverged", where)
        return False

    def consume(self, answers: Sequence[StoredAnswer]) -> None:
        """Send the replies to `bound` to the pipeline and bind the calls that it yields next.

        A reply that cannot be decoded fails the sample as `unreadable`.
        """
        if unreadable := next((found for found in answers if found.error), None):
            where = f"the reply to call {unreadable.call_id} at position {self.replay.position}"
            self.replay.fail("unreadable", f"{where} cannot be read by this release: {unreadable.error}")
            return
        for bound, found in zip(self.bound, answers, strict=True):
            self._record.update(bound.key + (found.raw or b""))
        self.replay.answer([found.reply for found in answers if found.reply is not None])
        self._bind()

    def _bind(self) -> None:
        try:
            self.replay.check_size()
            self.bound = self._binder.bind(self.replay.calls)
        except (TooManyCalls, RepeatedDraw) as error:
            self.bound = ()
            self.replay.fail("pipeline_error", str(error))
        except Exception as error:  # noqa: BLE001 - whatever a pipeline yields must end its own sample only
            self.bound = ()
            self.replay.fail("pipeline_error", f"cannot bind a call: {error!r}")
        where = self.replay.position
        if where >= self._recorded:
            self.steps.extend(NewStep(where, slot, bound) for slot, bound in enumerate(self.bound))


def _abbreviate(keys: Sequence[bytes]) -> str:
    return ", ".join(key.hex()[:12] for key in keys) or "nothing"
