"""The vocabulary on a GPU that is a file, and on an Ollama that is a double."""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx2

from tests.doubles.chat_server import ChatServer, chat_server
from tests.doubles.gpu import Gpu
from tests.doubles.misbehaviour import PATH, WELL
from tests.doubles.ollama_server import Ollama
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
    misbehave(server, WELL)
    gpu.relieve()


@contextmanager
def serving(double: Ollama) -> Iterator[ChatServer]:
    """The double on a loop of its own: the stack is other processes, and the test waits for it."""
    started: list[ChatServer] = []
    up, done = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with chat_server(double.respond) as server:
            started.append(server)
            up.set()
            await done.wait()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert up.wait(60)
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(done.set)
        thread.join(60)
        loop.close()
