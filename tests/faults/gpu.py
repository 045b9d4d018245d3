"""The vocabulary on a GPU that is a file, and on an Ollama that is a double."""

import asyncio
import json
from collections.abc import Mapping

import httpx2

from tests.doubles.gpu import Gpu
from tests.doubles.misbehaviour import PATH, WELL
from tests.faults.real import RealBackEnd
from tests.faults.vocabulary import Action, Subject
from tests.running import RunningStack

HIDDEN = {Subject.NVML: "Driver Not Loaded", Subject.GPU: "GPU is lost"}
"""What NVML says when its driver, or the device, is gone."""


class GpuBackEnd(RealBackEnd):
    """One job on a stack whose device is this GPU, and whose models are on this server.

    `misbehave(SERVER, "503 x3")`: three times; without a number until it behaves again.
    """

    def __init__(self, stack: RunningStack, job: str, whole: Mapping[str, int], gpu: Gpu, server: str) -> None:
        super().__init__(stack, job, whole)
        self._gpu = gpu
        self._server = server

    async def perform(self, action: Action) -> None:
        """What happens to memory and answers; everything else as on any stack."""
        match action.verb:
            case "misbehave":
                how, _, times = str(action.amount).partition(" x")
                await asyncio.to_thread(misbehave, self._server, how, int(times) if times else None)
            case "keep":
                await asyncio.to_thread(misbehave, self._server, "keep")
            case "take":
                self._gpu.take(float(action.amount))
            case "lag":
                self._gpu.lag_s = float(action.amount)
            case "hide":
                self._gpu.hide(HIDDEN[action.subject])
            case _:
                await super().perform(action)


def misbehave(server: str, how: str, times: int | None = None) -> None:
    """Tell a double; see `tests.doubles`."""
    body = {"how": how} if times is None else {"how": how, "times": times}
    httpx2.post(server + PATH, content=json.dumps(body), timeout=60, trust_env=False).raise_for_status()


def behave(server: str, gpu: Gpu) -> None:
    """Everything is as before."""
    gpu.relieve()
    misbehave(server, WELL)
