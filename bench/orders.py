"""Send a job's prompts in the orders of a service without staging, through the guard's own drivers.

It has no queue, database or retrieval, only loads, prompts and unloads. A prompt that several samples share is sent
once, for the first of them, so every order sends exactly what the staged job sent.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
from sqlalchemy import text

from services.guard.app import make_driver
from services.guard.drivers.ports import ModelServer
from shared.calls import Decoding, Request, seed_of
from shared.rag.prompts import list_references, render_request
from shared.settings import Settings
from shared.storage.database import Database
from shared.storage.provenance import LibraryCache

CALLS = text("""
    SELECT DISTINCT ON (c.id) c.id, c.key, c.role, c.request, s.ordinal
    FROM jobs j JOIN samples s ON s.job_id = j.id JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id
    WHERE j.public_id = :job AND c.role IN ('judge', 'generate') ORDER BY c.id, s.kind = 'prepare', s.ordinal""")
_REQUEST = msgspec.json.Decoder(Request)


class Prompt(NamedTuple):
    """A prompt with its decoding and seed, as the guard sent it."""

    text: str
    decoding: Decoding
    seed: int


Sample = dict[str, list[Prompt]]
"""The prompts of one sample by role."""


class Run(NamedTuple):
    """Seconds and loads of one order."""

    seconds: float
    loads: int


async def samples_of(database_url: str, job: str) -> list[Sample]:
    """Read every prompt that the job sent, assigned to the first sample that needed it."""
    database = Database(database_url, pinned=False)
    async with database.statement() as connection:
        rows = (await connection.execute(CALLS, {"job": job})).all()
        requests = [(row, _REQUEST.decode(row.request)) for row in rows]
        hashes = {ref.doc for _, request in requests for ref in list_references(request)}
        documents = await LibraryCache().documents(connection, hashes)
    await database.close()
    samples: dict[int, Sample] = {}
    for row, request in requests:
        if request.decoding is not None:
            prompt = Prompt(render_request(request, documents), request.decoding, seed_of(row.key))
            samples.setdefault(row.ordinal, {}).setdefault(row.role, []).append(prompt)
    return [samples[ordinal] for ordinal in sorted(samples)]


async def in_windows(samples: Sequence[Sample], size: int) -> Run:
    """Judge `size` samples, flip, generate their answers, flip, and so on; with size 1, sample by sample."""
    began, device = time.monotonic(), _Device(Settings())
    for window in _windows(samples, size):
        for role in ("judge", "generate"):
            if prompts := [prompt for sample in window for prompt in sample.get(role, ())]:
                await device.answer(role, prompts)
    await device.clear()
    return Run(time.monotonic() - began, device.loads)


class _Device:
    """Holds one model at a time and counts its loads."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._role: str | None = None
        self._server: ModelServer | None = None
        self.loads = 0

    async def answer(self, role: str, prompts: Sequence[Prompt]) -> None:
        server = await self._resident(role)
        slots = asyncio.Semaphore(self._settings.models[self._settings.roles[role]].parallel)  # type: ignore[index]

        async def ask(prompt: Prompt) -> None:
            async with slots:
                await server.complete(prompt.text, prompt.decoding, prompt.seed)

        await asyncio.gather(*(ask(prompt) for prompt in prompts))

    async def clear(self) -> None:
        if self._server is not None:
            await self._server.stop()
        self._server = self._role = None

    async def _resident(self, role: str) -> ModelServer:
        if self._server is None or role != self._role:
            await self.clear()
            name = self._settings.roles[role]  # type: ignore[index]
            self._server = await make_driver(name, self._settings.models[name], self._settings).start()
            self._role = role
            self.loads += 1
        return self._server


def _windows(samples: Sequence[Sample], size: int) -> Iterator[Sequence[Sample]]:
    return (samples[first : first + size] for first in range(0, len(samples), size))
