"""Driver `scripted`: a fake model for tests and benchmarks that passes through every real service.

It answers a rating prompt with a rating and any other with a number, both computed from the prompt alone, so that two
runs agree. Each answer is one token of probability 1.
"""

import asyncio
import zlib

from shared.calls import Decoding, ModelAnswer, Prompt, text_of
from shared.replies import Token
from shared.runtime.pins import ModelIdentity
from shared.settings import Device, Model
from shared.shapes import Architecture

RATING = "Rating:"


class ScriptedDriver:
    """Drives a fake model, which needs no files and no memory."""

    def __init__(self, name: str, model: Model, device: Device) -> None:
        self._name = name
        self._model = model
        self._device = device

    async def identify(self) -> ModelIdentity:
        """Identify the model by its name; the version is that of the rule that makes the answers."""
        return ModelIdentity(
            name=self._name,
            backend="scripted",
            digest="scripted",
            version="1",
            device=self._device.id,
            needs_lease=True,
            footprint_mib=self._model.footprint_mib,
        )

    async def take_over(self) -> None:
        """Do nothing: there is nothing to free."""

    async def architecture(self) -> Architecture | None:
        """Return None: there is no architecture."""
        return None

    async def warm(self) -> None:
        """Do nothing: there are no files."""

    async def start(self, parallel: int | None = None) -> "ScriptedServer":  # noqa: ARG002 - its slots are not ours
        """Return a server that answers at once."""
        return ScriptedServer()


class ScriptedServer:
    """A fake server that computes its answers."""

    pid = None
    exit_status = None
    died = False

    def __init__(self) -> None:
        self.alive = True

    async def complete(self, prompt: Prompt, decoding: Decoding, seed: int, logprobs: int = 0) -> ModelAnswer:
        """Answer with a rating if the prompt asks for one, otherwise with a boxed number."""
        prompt_text = text_of(prompt)
        number = zlib.crc32(f"{prompt_text}{seed if decoding.temperature else 0}".encode())
        text = f"[[{number % 5 + 1}]]" if prompt_text.endswith(RATING) else f"The answer is \\boxed{{{number % 10}}}."
        return ModelAnswer(
            text=text,
            finish_reason="stop",
            tokens=(Token(text=text, logprob=0.0, top={text: 0.0}),) if logprobs else (),
            prompt_tokens=len(prompt_text.split()),
            completion_tokens=1,
        )

    async def confirm(self) -> bool:
        """Return true: only the guard can change it."""
        return True

    async def wait_exited(self) -> None:
        """Wait for ever: it never ends by itself."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Mark the server as not alive."""
        self.alive = False

    def memory_mib(self) -> float | None:
        """Return 0: it takes no memory."""
        return 0.0
