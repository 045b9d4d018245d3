"""Driver `process` for the bundled llama.cpp: a child process serves the model, and its exit frees all memory."""

import asyncio
import json
import os
import secrets
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from importlib.metadata import version
from typing import TYPE_CHECKING

import psutil

from services.guard.drivers import launched
from services.guard.drivers.ports import Driver, DriverError
from shared.calls import Decoding, ModelAnswer, Prompt
from shared.models.chat import LLAMA, label_options
from shared.models.commands import deterministic_options
from shared.processes.children import die_with
from shared.runtime.pins import ModelIdentity
from shared.settings import Device, Model
from shared.shapes import Architecture

if TYPE_CHECKING:
    from shared.models.openai_compatible import OpenAICompatible

STOP_S = 5.0


class ProcessDriver(Driver):
    """Drives one GGUF file in a process of `services.guard.llama_server`, which dies with its guard."""

    def __init__(self, name: str, model: Model, device: Device) -> None:
        if model.path is None:
            raise DriverError(f"model {name!r}: driver `process` needs a `path`")
        self._name = name
        self._model = model
        self._path = model.path
        self._device = device

    async def identify(self) -> ModelIdentity:
        """Identify the model by the file's SHA-256, the version of llama.cpp, and the options that change a reply."""
        backend, number = "llama.cpp", version("xllamacpp")
        return ModelIdentity(
            name=self._name,
            backend=backend,
            digest=await launched.digest(self._path),
            version=number,
            options={
                "context": self._model.context, "parallel": self._model.parallel,
                **deterministic_options(self._model),
                **label_options(constrained=self._model.constrain_labels, backend=backend, version=number),
                "sampling": dict(LLAMA),
            },
            device=self._device.id,
            needs_lease=True,
            footprint_mib=self._model.footprint_mib,
        )  # fmt: skip

    async def architecture(self) -> Architecture | None:
        """Read the architecture from the file's header."""
        return await launched.read_architecture(self._name, self._path)

    async def warm(self) -> None:
        """Read the file into the page cache: the server maps it, so the load does not wait for the disk."""
        await launched.read_ahead(self._path)

    async def start(self, parallel: int | None = None) -> "LlamaServer":
        """Start the child and wait until it prints its URL."""
        key, weights = secrets.token_urlsafe(16), await launched.watch_weights(self._path)
        arguments = [
            *(sys.executable, "-P", "-m", "services.guard.llama_server", str(self._path)),
            *("--context", str(self._model.context), "--parallel", str(parallel or self._model.parallel)),
            *("--threads", str(self._model.threads)),
            *(("--no-cache-prompt",) if self._model.deterministic else ()),
        ]
        process = await asyncio.create_subprocess_exec(
            *arguments,
            env={**os.environ, "MATHRAG_SERVER_KEY": key},
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            preexec_fn=partial(die_with, os.getpid()),
        )
        # Imported while the server starts, for 0.12 s: an idle guard needs none of its 6 MiB.
        from shared.models.openai_compatible import OpenAICompatible

        try:
            url = await asyncio.wait_for(_read_announced_url(process), self._device.load_timeout_s)
        except (TimeoutError, ValueError) as error:
            await _kill(process)
            problem = "did not print its address; see the guard's log"
            if isinstance(error, TimeoutError):
                problem = f"was not ready within {self._device.load_timeout_s:g} s; raise `device.load_timeout_s`"
            raise DriverError(f"model {self._name!r}: its server {problem}") from error
        timeout_s = self._model.call_timeout_s
        chat = OpenAICompatible(url, model=self._name, api_key=key, timeout_s=timeout_s, backend="llama.cpp")
        return LlamaServer(process, chat, weights)


class LlamaServer:
    """A child that serves one model."""

    def __init__(
        self, process: asyncio.subprocess.Process, chat: "OpenAICompatible", weights: launched.WatchedWeights
    ) -> None:
        self._process = process
        self._chat = chat
        self._weights = weights

    @property
    def pid(self) -> int | None:
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Return whether the child runs and its file was not replaced."""
        return not (self.died or self._weights.replaced)

    @property
    def died(self) -> bool:
        return self.exit_status is not None

    @property
    def exit_status(self) -> int | None:
        return self._process.returncode

    async def complete(
        self, prompt: Prompt, decoding: Decoding, seed: int, logprobs: int = 0, choices: Sequence[str] = ()
    ) -> ModelAnswer:
        return await self._chat.complete(prompt, decoding, seed, logprobs, choices)

    async def confirm(self) -> bool:
        """Check that the mapped file is unchanged; nothing else of the guard's own child can change."""
        return await self._weights.confirm()

    async def wait_exited(self) -> None:
        await self._process.wait()

    async def stop(self) -> None:
        """End the child and reap it."""
        await self._chat.close()
        if not self.died:
            self._process.terminate()
            try:
                await asyncio.wait_for(self._process.wait(), STOP_S)
            except TimeoutError:
                await _kill(self._process)

    def memory_mib(self) -> float | None:
        """Return the child's proportional set size in MiB."""
        try:
            return float(psutil.Process(self._process.pid).memory_full_info().pss / 2**20)
        except psutil.Error:
            return None


async def _read_announced_url(process: asyncio.subprocess.Process) -> str:
    if process.stdout is None:
        raise ValueError("no pipe")
    line = await process.stdout.readline()
    return str(json.loads(line)["url"])


async def _kill(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
