"""The flip: OPEN, DRAINING, UNLOADING, VERIFY_FREE, LOADING, VERIFY_RESIDENT, OPEN; any failure QUARANTINED.

Pure: `on(event)` returns the effects that the guard carries out, each of which ends in the next event.
"""

from enum import StrEnum


class FlipState(StrEnum):
    """Where a device is."""

    CLOSED = "closed"
    OPEN = "open"
    DRAINING = "draining"
    UNLOADING = "unloading"
    VERIFY_FREE = "verify_free"
    LOADING = "loading"
    VERIFY_RESIDENT = "verify_resident"
    QUARANTINED = "quarantined"


class Event(StrEnum):
    """What has happened."""

    WANTED = "wanted"
    DRAINED = "drained"
    DRAIN_TIMEOUT = "drain_timeout"
    UNLOADED = "unloaded"
    FREE = "free"
    LOADED = "loaded"
    RESIDENT = "resident"
    FAILED = "failed"
    SERVER_EXIT = "server_exit"


class Effect(StrEnum):
    """What is to be done."""

    DRAIN = "drain"
    CANCEL = "cancel"
    """Abort the calls in flight; those of living servers go back uncharged."""
    UNLOAD = "unload"
    VERIFY_FREE = "verify_free"
    LOAD = "load"
    VERIFY_RESIDENT = "verify_resident"
    OPEN = "open"
    CLOSE = "close"
    QUARANTINE = "quarantine"


S, E, F = FlipState, Event, Effect
TRANSITIONS: dict[tuple[FlipState, Event], tuple[FlipState, tuple[Effect, ...]]] = {
    (S.CLOSED, E.WANTED): (S.UNLOADING, (F.UNLOAD,)),
    (S.QUARANTINED, E.WANTED): (S.UNLOADING, (F.UNLOAD,)),
    (S.OPEN, E.WANTED): (S.DRAINING, (F.DRAIN,)),
    (S.OPEN, E.SERVER_EXIT): (S.CLOSED, (F.CANCEL, F.CLOSE, F.UNLOAD)),
    (S.DRAINING, E.DRAINED): (S.UNLOADING, (F.CLOSE, F.UNLOAD)),
    (S.DRAINING, E.DRAIN_TIMEOUT): (S.UNLOADING, (F.CANCEL, F.CLOSE, F.UNLOAD)),
    (S.UNLOADING, E.UNLOADED): (S.VERIFY_FREE, (F.VERIFY_FREE,)),
    (S.VERIFY_FREE, E.FREE): (S.LOADING, (F.LOAD,)),
    (S.LOADING, E.LOADED): (S.VERIFY_RESIDENT, (F.VERIFY_RESIDENT,)),
    (S.VERIFY_RESIDENT, E.RESIDENT): (S.OPEN, (F.OPEN,)),
}
STEPS = (S.OPEN, S.DRAINING, S.UNLOADING, S.VERIFY_FREE, S.LOADING, S.VERIFY_RESIDENT)


class FlipMachine:
    """One device's state."""

    def __init__(self) -> None:
        self.state = FlipState.CLOSED

    def on(self, event: Event) -> tuple[Effect, ...]:
        """The effects of `event`; a failure in any step quarantines, an event out of place does nothing."""
        if event is Event.FAILED and self.state in STEPS:
            self.state = FlipState.QUARANTINED
            return (Effect.CANCEL, Effect.UNLOAD, Effect.QUARANTINE)
        self.state, effects = TRANSITIONS.get((self.state, event), (self.state, ()))
        return effects
