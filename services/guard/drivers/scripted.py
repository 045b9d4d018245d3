"""A model that costs nothing, for tests and benchmarks: it crosses every real hop and answers by rule.

It rates a document by its length and answers a question with a number made from the prompt; both depend on nothing but
the prompt, so two runs agree. Of what it says it is certain: all of it is one token of probability 1.
"""

import asyncio
import zlib

from shared.contracts.architecture import Architecture
from shared.contracts.calls import Decoding
from shared.contracts.guard import ModelAnswer
from shared.contracts.replies import Token
from shared.device_settings import Device
from shared.model_settings import Model
from shared.runtime.models import ModelIdentity

RATING = "Rating:"


class ScriptedDriver:
    """A model that is all rule."""

    def __init__(self, name: str, model: Model, device: Device) -> None:
        self._name = name
        self._model = model
        self._device = device

    async def identify(self) -> ModelIdentity:
        """Its name and a version of the rule."""
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
        """Nothing is held."""

    async def architecture(self) -> Architecture | None:
        """Not told."""
        return None

    async def warm(self) -> None:
        """Nothing to read ahead."""

    async def start(self, parallel: int | None = None) -> "ScriptedServer":  # noqa: ARG002 - its slots are not ours
        """Nothing to bring up."""
        return ScriptedServer()


class ScriptedServer:
    """Answers at once."""

    pid = None
    exit_status = None
    died = False

    def __init__(self) -> None:
        self.alive = True

    async def complete(self, prompt: str, decoding: Decoding, seed: int, logprobs: int = 0) -> ModelAnswer:
        """A rating where the prompt asks for one, a boxed number elsewhere."""
        number = zlib.crc32(f"{prompt}{seed if decoding.temperature else 0}".encode())
        text = f"[[{number % 5 + 1}]]" if prompt.endswith(RATING) else f"The answer is \\boxed{{{number % 10}}}."
        return ModelAnswer(
            text=text,
            finish_reason="stop",
            tokens=(Token(text=text, logprob=0.0, top={text: 0.0}),) if logprobs else (),
            prompt_tokens=len(prompt.split()),
            completion_tokens=1,
        )

    async def confirm(self) -> bool:
        """It is the guard's own."""
        return True

    async def exited(self) -> None:
        """Never by itself."""
        await asyncio.Event().wait()

    async def stop(self) -> None:
        """Gone."""
        self.alive = False

    def memory_mib(self) -> float | None:
        """None worth the name."""
        return 0.0
