"""The flip machine: its one way round, and that no sequence of events takes a short cut."""

from collections.abc import Iterator
from itertools import product

import pytest

from shared.lease.policy import STEPS, Effect, FlipEvent, FlipMachine, FlipState

S, E, F = FlipState, FlipEvent, Effect
Asked = tuple[Effect, ...]

# Written out from the design, not from the code: OPEN -> DRAINING -> UNLOADING -> VERIFY_FREE -> LOADING ->
# VERIFY_RESIDENT -> OPEN.
ROUND = [
    (S.OPEN, E.WANTED, S.DRAINING, (F.DRAIN,)),
    (S.DRAINING, E.DRAINED, S.UNLOADING, (F.CLOSE, F.UNLOAD)),
    (S.DRAINING, E.DRAIN_TIMEOUT, S.UNLOADING, (F.CANCEL, F.CLOSE, F.UNLOAD)),
    (S.UNLOADING, E.UNLOADED, S.VERIFY_FREE, (F.VERIFY_FREE,)),
    (S.VERIFY_FREE, E.FREE, S.LOADING, (F.LOAD,)),
    (S.LOADING, E.LOADED, S.VERIFY_RESIDENT, (F.VERIFY_RESIDENT,)),
    (S.VERIFY_RESIDENT, E.RESIDENT, S.OPEN, (F.OPEN,)),
    (S.CLOSED, E.WANTED, S.UNLOADING, (F.UNLOAD,)),
    (S.QUARANTINED, E.WANTED, S.UNLOADING, (F.UNLOAD,)),
    (S.OPEN, E.SERVER_EXIT, S.CLOSED, (F.CANCEL, F.CLOSE, F.UNLOAD)),
]
IN_A_FLIP = (S.DRAINING, S.UNLOADING, S.VERIFY_FREE, S.LOADING, S.VERIFY_RESIDENT)
PLACED = {(state, event) for state, event, *_ in ROUND} | {(state, E.FAILED) for state in (*IN_A_FLIP, S.OPEN)}
"""What a failure does to the last step, opening, is told where the steps are carried out: in test_reconciler."""


def machine(state: FlipState) -> FlipMachine:
    made = FlipMachine()
    made.state = state
    return made


@pytest.mark.parametrize(("state", "event", "after", "effects"), ROUND)
def test_every_transition_of_the_design(
    state: FlipState, event: FlipEvent, after: FlipState, effects: tuple[Effect, ...]
) -> None:
    flip = machine(state)
    assert flip.handle(event) == effects
    assert flip.state is after


@pytest.mark.parametrize("state", IN_A_FLIP)
def test_any_failure_in_a_flip_quarantines(state: FlipState) -> None:
    flip = machine(state)
    assert flip.handle(E.FAILED) == (F.CANCEL, F.UNLOAD, F.QUARANTINE)
    assert flip.state is S.QUARANTINED


@pytest.mark.parametrize(("state", "event"), sorted(set(product(S, E)) - PLACED))
def test_an_event_out_of_place_does_nothing(state: FlipState, event: FlipEvent) -> None:
    flip = machine(state)
    assert flip.handle(event) == ()
    assert flip.state is state


def test_a_device_starts_closed() -> None:
    assert FlipMachine().state is S.CLOSED


def test_the_steps_of_a_flip_include_all_between_two_residencies() -> None:
    assert set(IN_A_FLIP) <= set(STEPS)


def walk(
    flip: FlipMachine, asked: tuple[Effect, ...], depth: int
) -> Iterator[tuple[FlipEvent, FlipState, Effect, Asked]]:
    """(event, state before it, effect, effects before it) of every sequence of up to `depth` further events.

    An event that changes nothing is left out: what can follow it can follow without it, and the state is all there is.
    """
    assert vars(flip).keys() == {"state"}
    if depth == 0:
        return
    for event in FlipEvent:
        then = machine(flip.state)
        effects = then.handle(event)
        if (then.state, effects) == (flip.state, ()):
            continue
        for n, effect in enumerate(effects):
            yield event, flip.state, effect, asked + effects[:n]
        yield from walk(then, asked + effects, depth - 1)


def since(asked: Asked, effect: Effect) -> Asked:
    return asked[len(asked) - asked[::-1].index(effect) :] if effect in asked else asked


@pytest.mark.parametrize("start", [S.CLOSED, S.OPEN, S.QUARANTINED])
def test_no_sequence_of_events_takes_a_short_cut(start: FlipState) -> None:
    opened = loaded = 0
    for event, before, effect, asked in walk(machine(start), (), 6):
        if effect is F.OPEN:
            opened += 1
            assert (before, event) == (S.VERIFY_RESIDENT, E.RESIDENT)
            assert F.VERIFY_RESIDENT in since(asked, F.LOAD)
        if effect is F.LOAD:
            loaded += 1
            assert (before, event) == (S.VERIFY_FREE, E.FREE)
            assert F.VERIFY_FREE in since(asked, F.UNLOAD)
    assert opened
    assert loaded


def test_a_drain_that_times_out_aborts_before_it_closes() -> None:
    flip = machine(S.DRAINING)
    effects = flip.handle(E.DRAIN_TIMEOUT)
    assert effects.index(F.CANCEL) < effects.index(F.CLOSE) < effects.index(F.UNLOAD)
