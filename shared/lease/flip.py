"""The state machine of a flip: OPEN, DRAINING, UNLOADING, VERIFY_FREE, LOADING, VERIFY_RESIDENT, OPEN.

Any failure leads to QUARANTINED. Pure: `handle` returns the effects that the guard carries out, each of which ends in
the next event.
"""

from enum import StrEnum


class FlipState(StrEnum):
    """State of a device."""

    CLOSED = "closed"
    OPEN = "open"
    DRAINING = "draining"
    UNLOADING = "unloading"
    VERIFY_FREE = "verify_free"
    LOADING = "loading"
    VERIFY_RESIDENT = "verify_resident"
    QUARANTINED = "quarantined"


class FlipEvent(StrEnum):
    """Something that has happened during a flip."""

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
    """A step that the guard has to carry out."""

    DRAIN = "drain"
    CANCEL = "cancel"
    """Abort the calls in flight; those of servers that are alive go back uncharged."""
    UNLOAD = "unload"
    VERIFY_FREE = "verify_free"
    LOAD = "load"
    VERIFY_RESIDENT = "verify_resident"
    OPEN = "open"
    CLOSE = "close"
    QUARANTINE = "quarantine"


S, E, F = FlipState, FlipEvent, Effect
TRANSITIONS: dict[tuple[FlipState, FlipEvent], tuple[FlipState, tuple[Effect, ...]]] = {
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
    """Holds one device's state and maps events to effects."""

    def __init__(self) -> None:
        self.state = FlipState.CLOSED

    def handle(self, event: FlipEvent) -> tuple[Effect, ...]:
        """Return the effects of `event`: a failure in any step quarantines, an unexpected event does nothing."""
        if event is FlipEvent.FAILED and self.state in STEPS:
            self.state = FlipState.QUARANTINED
            return (Effect.CANCEL, Effect.UNLOAD, Effect.QUARANTINE)
        self.state, effects = TRANSITIONS.get((self.state, event), (self.state, ()))
        return effects
