"""Stacks whose models are doubles that misbehave on demand: programs, an Ollama, a remote endpoint, a GPU in a file."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import psutil

from tests.doubles.gpu import Gpu
from tests.doubles.misbehaviour import PATH, WELL
from tests.doubles.model_server import program
from tests.doubles.ollama_server import Ollama, serve_ollama
from tests.faults.processes import Processes, until
from tests.faults.real import RealBackEnd
from tests.faults.trial import SOONER, measure_calls
from tests.faults.vocabulary import Action, Subject
from tests.running import RunningStack, running_stack

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


PROGRAMS = ("tgi", "vllm")
FAR_KEY = "a-key-of-a-remote-server"
DEADLINE_S = 5.0
"""Deadline of a call, after which a hanging call is aborted."""


@dataclass
class Backends:
    """The stack and its model servers."""

    stack: RunningStack
    whole: dict[str, int]
    addresses: dict[str, str]
    """Of the servers that the guard does not start."""
    far_port: int

    def misbehave(self, model: str, how: str, times: int | None = None) -> None:
        """Tell the server of a model."""
        misbehave(self.addresses.get(model) or self._of_program(model), how, times)

    def behave(self) -> None:
        """Everything is as before."""
        for model in (*self.addresses, *PROGRAMS):
            if model in self.addresses or self._find_ports(model):
                with suppress(httpx2.TransportError):  # one that has just ended behaves when it is started again
                    self.misbehave(model, WELL)

    def _of_program(self, model: str) -> str:
        until(f"the server of {model} is up", lambda: self._find_ports(model))
        (port,) = self._find_ports(model)
        return f"http://127.0.0.1:{port}"

    def _find_ports(self, model: str) -> list[int]:
        """Where it listens: on one port, or not at all."""
        found = Processes(self.stack).servers()
        return [port for process in found if _serves(process, model) for port in _ports(process)]


class BackendsBackEnd(RealBackEnd):
    """`misbehave(SERVER, "tgi 503 x3")`: whose server, how, and how often; without a number until it behaves again."""

    def __init__(self, backends: Backends, job: str) -> None:
        super().__init__(backends.stack, job, backends.whole)
        self._backends = backends

    async def perform(self, action: Action) -> None:
        """What model servers do; everything else as on any stack."""
        if action.verb != "misbehave":
            return await super().perform(action)
        said, _, times = str(action.amount).partition(" x")
        model, _, how = said.partition(" ")
        await asyncio.to_thread(self._backends.misbehave, model, how, int(times) if times else None)
        return None


@contextmanager
def backends(folder: Path, items: int) -> Iterator[Backends]:
    """A judge on TGI, a generator on vLLM that sleeps, another judge on Ollama, and a generator far away."""
    ollama = Ollama()
    ollama.pull("ollama:1b")
    with serve_ollama(ollama) as server, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        far = probe.getsockname()[1]
        probe.close()
        config = folder / "mathrag.yaml"
        config.write_text(json.dumps(_configuration(folder, server.url, far)))
        with running_stack(folder / "data", MATHRAG_CONFIG=str(config), FAR_KEY=FAR_KEY, **SOONER) as stack:
            stack.furnish(folder / "world", items=items)
            made = Backends(stack, {}, {"ollama": server.url}, far)
            with far_away(made):  # its models are known from now on
                until("the remote server is identified", lambda: _is_registered(stack, "far"))
            made.whole = measure_calls(stack)
            yield made


def _is_registered(stack: RunningStack, model: str) -> bool:
    return any(found["name"] == model and found["registered"] for found in stack.get("/v1/models"))


def _configuration(folder: Path, ollama: str, far: int) -> dict[str, object]:
    tgi, vllm = program(folder, "tgi_server"), program(folder, "vllm_server")
    common = {"parallel": 4, "context": 2048, "footprint_mib": 100, "call_timeout_s": DEADLINE_S}
    models = {
        "tgi": {"driver": "process", "server": "tgi", "hub": "Qwen/judge", "command": [tgi]},
        "vllm": {"driver": "vllm-sleep", "hub": "Qwen/generator", "command": [vllm, "serve"]},
        "ollama": {"driver": "ollama", "url": ollama, "tag": "ollama:1b"},
        "far": {"driver": "remote", "url": f"http://127.0.0.1:{far}", "api_key_env": "FAR_KEY"},
    }
    return {
        "models": {name: common | model for name, model in models.items()},
        "roles": {"judge": "tgi", "generate": "vllm"},
        "device": {"budget_mib": 150},
    }


@contextmanager
def deaf(port: int) -> Iterator[None]:
    """Listen at the address without accepting a connection: the queue of connections is full."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(0)
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.1", port))
        yield


@contextmanager
def far_away(backends: Backends) -> Iterator[None]:
    """Run the remote server, which is in fact on this host."""
    port = str(backends.far_port)
    arguments = ["--served-model-name", "far", "--host", "127.0.0.1", "--port", port, "--seed", "0"]
    sizes = ["--max-model-len", "2048", "--max-num-seqs", "4"]
    command = [sys.executable, "-m", "tests.doubles.vllm_server", "serve", "far", *arguments, *sizes]
    running = psutil.Popen(command, env={**os.environ, "VLLM_API_KEY": FAR_KEY})
    try:
        until("the remote server listens", lambda: _ports(running))
        backends.addresses["far"] = f"http://127.0.0.1:{port}"
        yield
    finally:
        backends.addresses.pop("far", None)
        for process in (*running.children(), running):
            process.kill()
        running.wait()


def _serves(process: psutil.Process, model: str) -> bool:
    try:
        return f"tests.doubles.{model}_server" in process.cmdline()
    except psutil.Error:
        return False


def _ports(process: psutil.Process) -> list[int]:
    return [each.laddr.port for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN]
