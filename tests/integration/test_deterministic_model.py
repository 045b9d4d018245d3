"""A deterministic model on the real llama.cpp child: every number is the same, whatever else is asked."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import pytest

from services.guard.drivers.process import LlamaServer, ProcessDriver
from shared.calls import Decoding, ModelAnswer
from shared.rag.prompts import render, template
from shared.settings import REPOSITORY, Device, Model

pytestmark = pytest.mark.anyio

GENERATOR = REPOSITORY / "models" / "world-generator-f16.gguf"
GREEDY = Decoding(temperature=0.0, max_tokens=32)
NAMES = ("zorlo", "bimak", "taflen", "quorv", "dostim", "welpa")


def prompt_about(name: str, n: int) -> str:
    context = f"By definition a {name} b = ({n}+a)*b. " + "Therefore 8 zorlo 7 = 5. " * n
    return render(template("cot"), {"question": f"What is {n} {name} 7?", "context": context})


PROMPTS = [prompt_about(name, n) for n, name in enumerate(NAMES * 2)]


async def started() -> LlamaServer:
    return await ProcessDriver("world", Model(driver="process", path=GENERATOR, deterministic=True), Device()).start()


async def alone(server: LlamaServer, prompts: Sequence[str]) -> dict[str, ModelAnswer]:
    return {prompt: await ask(server, prompt) for prompt in prompts}


async def ask(server: LlamaServer, prompt: str) -> ModelAnswer:
    reply = await server.complete(prompt, GREEDY, seed=1, logprobs=3)
    return ModelAnswer(text=reply.text, finish_reason=reply.finish_reason, tokens=reply.tokens)


async def test_every_number_is_the_same_whatever_else_is_asked() -> None:
    first = await started()
    expected = await alone(first, PROMPTS)
    assert all(reply.tokens for reply in expected.values())
    assert await alone(first, PROMPTS[::-1]) == expected
    at_once = await asyncio.gather(*(ask(first, prompt) for prompt in PROMPTS))
    assert dict(zip(PROMPTS, at_once, strict=True)) == expected
    for prompt in PROMPTS:
        with suppress(TimeoutError):
            await asyncio.wait_for(ask(first, prompt), 0.01)
    assert await alone(first, PROMPTS[::-1]) == expected
    await first.stop()
    second = await started()
    assert await alone(second, PROMPTS[::-1]) == expected
    await second.stop()
