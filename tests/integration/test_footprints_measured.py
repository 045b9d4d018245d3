"""The formula against llama.cpp itself: what more context takes in a process is the KV cache that was computed."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.guard.drivers.process import LlamaServer, ProcessDriver
from shared.lease.memory import AssumedMemory, assume_memory
from shared.models import metadata
from shared.settings import REPOSITORY, Device, Model

pytestmark = pytest.mark.anyio

JUDGE = REPOSITORY / "models" / "world-judge-f16.gguf"
SLOTS = 8
SMALL, LARGE = 1024, 4096
"""Tokens of a slot."""


@asynccontextmanager
async def up(context: int) -> AsyncIterator[LlamaServer]:
    model = Model(driver="process", path=JUDGE, context=context, parallel=SLOTS)
    server = await ProcessDriver("judge", model, Device()).start()
    try:
        yield server
    finally:
        await server.stop()


def computed(context: int) -> AssumedMemory:
    return assume_memory(metadata.read_gguf_architecture(JUDGE), context=context, parallel=SLOTS, on_gpu=False)


async def test_more_context_takes_what_the_formula_says() -> None:
    async with up(SMALL) as small, up(LARGE) as large:
        less, more = small.memory_mib(), large.memory_mib()
    assert less is not None
    assert more is not None
    assert more - less == pytest.approx(computed(LARGE).kv_mib - computed(SMALL).kv_mib, rel=0.1)


async def test_a_process_takes_more_than_its_model() -> None:
    async with up(SMALL) as server:
        taken = server.memory_mib()
    assert taken is not None
    assert taken > computed(SMALL).total
