"""Flips as spans of the guard: a trace each, a span a step, with cause and outcome."""

import logging

import pytest

from shared.storage.database import Database
from tests.integration.test_reconciler import Rig
from tests.unit.tracing import tracing

pytestmark = pytest.mark.anyio


@pytest.fixture
async def rig(database: Database) -> Rig:
    return await Rig(database).register()


async def test_a_flip_shows_its_steps_and_loads(rig: Rig) -> None:
    with tracing() as spans:
        epoch = await rig.flip("judge")
        await rig.flip("generator")
    first, second = spans.named("flip wanted")
    assert (first.attributes["mathrag.cause"], first.attributes["mathrag.device"]) == ("test", "cpu:0")
    assert (first.attributes["mathrag.epoch"], second.attributes["mathrag.epoch"]) == (epoch, epoch + 1)
    assert (first.parent, first.context.trace_id == second.context.trace_id) == (None, False)
    steps = [span for span in spans.all() if span.parent and span.parent.span_id == second.context.span_id]
    assert {"drain", "unload", "verify_free", "load", "verify_resident", "open"} <= {step.name for step in steps}
    (load,) = spans.named("load generator")
    assert load.parent.span_id in {step.context.span_id for step in steps}


async def test_a_flip_that_fails_says_at_which_step(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with tracing() as spans, caplog.at_level(logging.CRITICAL):
        await rig.flip("judge", "generator")
    flip = spans.one("flip wanted")
    assert flip.attributes["error.type"] == "quarantined"
    assert spans.one("verify_free").attributes["error.type"] == "DriverError"
    assert not spans.named("load")


async def test_a_server_that_dies_is_a_flip_with_that_cause(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    with tracing() as spans, caplog.at_level(logging.CRITICAL):
        epoch = await rig.flip("judge")
        rig.server("judge").die()
        await rig.reconciler.reconcile()
    flip = spans.one("flip server_exit")
    assert (flip.attributes["mathrag.cause"], flip.attributes["mathrag.epoch"]) == ("server_exit", epoch)
