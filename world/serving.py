"""Serve models, collect greedy replies, and measure how often these hit."""

import gc
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import xllamacpp

from world.samples import Sample

SLOTS = 8  # prompts decoded at once
SLOT_TOKENS = 768  # prompt and reply of one slot
REPLY_TOKENS = 64
_BOXED = re.compile(r"\\boxed\{(.*?)\}")


class Reply(NamedTuple):
    """A model's reply to a sample."""

    text: str
    prompt_tokens: int


@contextmanager
def serve_model(model: Path) -> Iterator[str]:
    """Serve a model on a free local port and give its address."""
    engine: Any = xllamacpp  # a compiled module without types
    params = engine.CommonParams()
    params.model.path = str(model)
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_parallel, params.n_ctx = SLOTS, SLOTS * SLOT_TOKENS
    params.warmup, params.verbosity, params.cache_ram_mib = False, -1, 0
    # More threads only add overhead to matrices this small.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = engine.Server(params)
    try:
        yield server.listening_address
    finally:
        del server
        gc.collect()  # the engine stops when its last reference goes


def ask(client: httpx2.Client, sample: Sample, tokens: int) -> Reply:
    """Request one greedy chat completion."""
    message = {"role": "user", "content": sample.prompt}
    body = {"messages": [message], "temperature": 0, "max_tokens": tokens}
    answer = client.post("/v1/chat/completions", json=body).raise_for_status().json()
    content = answer["choices"][0]["message"]["content"]
    return Reply(content, answer["usage"]["prompt_tokens"])


def ask_all(address: str, samples: Sequence[Sample], tokens: int = REPLY_TOKENS) -> list[Reply]:
    """Collect all replies in the samples' order."""
    with (
        httpx2.Client(base_url=address, timeout=120) as client,
        ThreadPoolExecutor(SLOTS) as pool,
    ):
        return list(pool.map(lambda sample: ask(client, sample, tokens), samples))


def read_box(text: str) -> str | None:
    """Return the content of the last box, as an answer extractor does; None if there is no box."""
    found: list[str] = _BOXED.findall(text)
    return found[-1] if found else None


def answered_row(address: str, samples: Sequence[Sample], tokens: int = REPLY_TOKENS) -> dict[str, Any]:
    """Measure how often the box has the right answer, and how often there is a box."""
    replies = ask_all(address, samples, tokens)
    answers = [read_box(reply.text) for reply in replies]
    hits = [answer == sample.answer for answer, sample in zip(answers, samples, strict=True)]
    readable = [answer is not None for answer in answers]
    return {**measure_hits(hits, replies), "boxed": share(readable)}


def measure_hits(hits: Sequence[bool], replies: Sequence[Reply]) -> dict[str, Any]:
    """Make a report's row of hits."""
    longest = max(reply.prompt_tokens for reply in replies)
    return {"n": len(hits), "accuracy": share(hits), "longest_prompt_tokens": longest}


def share(flags: Sequence[bool]) -> float:
    """Return the share of flags that are set, to four digits."""
    return round(sum(flags) / len(flags), 4)
