"""Implements driver `process` for external programs: `llama-server`, text-generation-inference and vLLM.

The guard starts the program for one model and ends it to free the device. Before a residency opens, the program must
have named its model, refused a prompt that does not fit, and answered one that does.
"""

import asyncio
import json
import secrets
import shutil
import socket
from collections.abc import Coroutine, Iterable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from typing import Any

import httpx2

from services.guard.drivers import files, trees, versions
from services.guard.drivers.ports import DriverError, ModelServer
from services.guard.drivers.trees import ProcessTree
from services.guard.page_cache import read_ahead
from shared.access.filters import authorization
from shared.calls import Decoding, ModelAnswer, Prompt
from shared.models import commands
from shared.models.chat import BY_BACKEND, ChatFailed, OpenAICompatible, PromptCut
from shared.models.commands import LaunchRequest, Page
from shared.replies import FailureKind
from shared.runtime.pins import ModelIdentity
from shared.settings import Device, Model
from shared.shapes import Architecture

POLL_S = 0.1
ANSWER_S = 5.0
"""Timeout of a request for a page that describes the server."""
ONE_TOKEN = Decoding(max_tokens=1)


class ExternalProgramDriver:
    """Starts and ends the program that serves one model.

    `owner` marks this guard's processes and stays the same after a restart.
    """

    def __init__(self, name: str, model: Model, device: Device, owner: str) -> None:
        self._name = name
        self._model = model
        self._device = device
        self._owner = owner
        try:
            self._program = commands.select_program(model)
        except ValueError as error:
            raise DriverError(f"model {name!r}: {error}") from error

    async def identify(self) -> ModelIdentity:
        """Identify the model by the digest of its weights or the hub's commit, by what `--version` prints, and by all
        arguments, named files and environment settings that can change a reply."""
        command = commands.base_command(self._model)
        options = {"context": self._model.context, "parallel": self._model.parallel, "model": self._model.hub}
        return ModelIdentity(
            name=self._name,
            backend=self._program.backend,
            digest=await files.digest(path) if (path := self._model.path) else self._model.revision,
            version=await self._read_version(),
            options={
                **options,
                **commands.deterministic_options(self._model),
                "arguments": [*command[1:], *self._program.model_first, *self._program.arguments],
                **await files.digest_named_files(command[1:]),
                **commands.environment_options(trees.inherit_environment()),
                "sampling": dict(BY_BACKEND[self._program.backend]),
            },
            device=self._device.id,
            needs_lease=True,
            footprint_mib=self._model.footprint_mib,
        )

    async def take_over(self) -> None:
        """End the programs that a killed guard has left running, of this model and of others."""
        await trees.end_leftovers(self._owner)

    async def architecture(self) -> Architecture | None:
        """Read the architecture from local weights; None for a model of the hub."""
        return await files.read_architecture(self._name, self._model.path) if self._model.path else None

    async def warm(self) -> None:
        """Read the weights into the page cache, so that the load does not wait for the disk."""
        if self._model.path is not None:
            await read_ahead(self._model.path)

    async def start(self, parallel: int | None = None) -> ModelServer:
        """Start the program, wait until it is ready, and verify what it serves."""
        return await self.launch(parallel or self._model.parallel)

    async def launch(self, parallel: int) -> "ExternalProgramServer":
        """Start the program with `parallel` slots and return its server.

        Raises:
            DriverError: it did not become ready; the message says why.
        """
        try:
            return await self._launch_program(parallel)
        except DriverError as error:
            raise DriverError(f"model {self._name!r}: its server {error}") from error
        except httpx2.HTTPError as error:
            raise DriverError(f"model {self._name!r}: its server broke the connection: {error!r}") from error

    async def _launch_program(self, parallel: int) -> "ExternalProgramServer":
        request = LaunchRequest(self._name, self._model, parallel)
        key, (port, spare) = secrets.token_urlsafe(16), _find_free_ports(2)
        launch = commands.build_launch(request, port=port, spare=spare, key=key)
        weights = await files.watch_weights(self._model.path) if self._model.path else None
        async with AsyncExitStack() as stack:
            tree = await trees.start(launch.arguments, launch.environment, self._owner)
            server = ExternalProgramServer(tree, f"http://127.0.0.1:{port}", key, request, weights)
            stack.push_async_callback(server.stop)
            await self._wait_until_ready(self._await_ready(server), tree)
            stack.pop_all()
            return server

    async def _await_ready(self, server: "ExternalProgramServer") -> None:
        while not await server.is_ready():  # noqa: ASYNC110 - the program sends no event when it is ready
            await asyncio.sleep(POLL_S)
        await self._verify(server)

    async def _verify(self, server: "ExternalProgramServer") -> None:
        """Verify model, options and version of the server, and that it does not silently truncate prompts."""
        page = await server.read_page(self._program.pages)
        try:
            problem, version = self._program.find_misfit(page, server.request), self._program.version(page)
        except (KeyError, TypeError, ValueError) as error:
            raise DriverError(f"does not describe its model in a known form: {error!r}") from error
        if problem:
            raise DriverError(problem)
        if version not in await self._read_version():
            raise DriverError(f"is version {version}, which its `--version` does not print; correct `command`")
        await server.verify_prompt_limit()

    async def _wait_until_ready(self, coming: Coroutine[Any, Any, None], tree: ProcessTree) -> None:
        """Wait for `coming` until the load timeout, or until the program has exited."""
        dying, up = asyncio.create_task(tree.wait_exited()), asyncio.create_task(coming)
        try:
            within_s = self._device.load_timeout_of(self._model)
            await asyncio.wait((dying, up), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            if dying.done():
                raise DriverError(f"ended {tree.ending} while it was loading: {await tree.read_last_output()}")
            if not up.done():
                problem = f"was not ready within {within_s:g} s; raise `device.load_timeout_s` if it needs longer"
                raise DriverError(f"{problem}: {await tree.read_last_output()}")
            up.result()
        finally:
            for task in (dying, up):
                task.cancel()
            await asyncio.wait((dying, up))

    async def _read_version(self) -> str:
        executable = commands.base_command(self._model)[0]
        found = shutil.which(executable)
        if found is None:
            raise DriverError(
                f"model {self._name!r}: program {executable!r} not found; install it, or set its path in `command`"
            )
        return await versions.find_version(Path(found), self._program)


class ExternalProgramServer:
    """A program that serves one model."""

    def __init__(
        self, tree: ProcessTree, url: str, key: str, request: LaunchRequest, weights: files.WatchedWeights | None
    ) -> None:
        self.request = request
        self._weights = weights
        self._tree = tree
        self._chat = OpenAICompatible(
            url, model=request.name, api_key=key, timeout_s=request.model.call_timeout_s, sampling=request.sampling
        )
        self._client = httpx2.AsyncClient(
            base_url=url, headers=authorization(key), timeout=ANSWER_S, trust_env=False
        )  # fmt: skip

    @property
    def pid(self) -> int | None:
        """Process id of the program."""
        return self._tree.pid

    @property
    def alive(self) -> bool:
        """Whether the program runs and its weights were not replaced."""
        return self._tree.alive and not (self._weights and self._weights.replaced)

    @property
    def died(self) -> bool:
        """Whether the program has exited."""
        return not self._tree.alive

    @property
    def exit_status(self) -> int | None:
        """Return code of the program."""
        return self._tree.exit_status

    async def complete(self, prompt: Prompt, decoding: Decoding, seed: int, logprobs: int = 0) -> ModelAnswer:
        return await self._chat.complete(prompt, decoding, seed, logprobs)

    async def confirm(self) -> bool:
        """Check that the weights are unchanged; nothing else of the guard's own program can change."""
        return self._weights is None or await self._weights.confirm()

    async def wait_exited(self) -> None:
        """Return when the program has exited."""
        await self._tree.wait_exited()

    async def stop(self) -> None:
        """End the program and all processes that it has started."""
        await self._chat.close()
        await self._client.aclose()
        await self._tree.end()

    def memory_mib(self) -> float | None:
        """Return the host memory of all its processes."""
        return self._tree.memory_mib()

    async def is_ready(self) -> bool:
        """Tell whether `/health` answers 200."""
        try:
            return bool((await self._client.get("/health")).status_code == httpx2.codes.OK)
        except httpx2.TransportError:
            return False

    async def read_page(self, paths: Iterable[str]) -> Page:
        """Read JSON objects from these paths and merge them, later ones over earlier ones.

        Raises:
            DriverError: a path does not answer 200 with a JSON object.
        """
        found: dict[str, Any] = {}
        for path in paths:
            try:
                found |= json.loads(await self.read_text(path))
            except (ValueError, TypeError) as error:
                raise DriverError(f"answers no JSON object at {path}: {error}") from error
        return found

    async def read_text(self, path: str) -> str:
        """Read the text at `path`.

        Raises:
            DriverError: the answer is not 200.
        """
        return _require_ok(await self._client.get(path)).text

    async def post(self, path: str) -> None:
        """Post to `path` without a timeout.

        Raises:
            DriverError: the answer is not 200.
        """
        _require_ok(await self._client.post(path, timeout=None))

    async def verify_prompt_limit(self) -> None:
        """Verify that the server refuses a prompt that cannot fit and answers one that fits.

        Raises:
            DriverError: it does not.
        """
        too_long = " ".join(map(str, range(self.request.model.context + 1)))
        refusal = await self._try_prompt(too_long)
        if refusal is None or isinstance(refusal, PromptCut):
            raise DriverError("silently truncates prompts that do not fit; correct its arguments in `command`")
        if refusal.kind is not FailureKind.CONTEXT_EXCEEDED:
            raise DriverError(f"does not report that a prompt is too long, but: {refusal}")
        if (failed := await self._try_prompt("1 + 1 =")) is not None:
            raise DriverError(f"is ready but fails to answer a short prompt: {failed}")

    async def _try_prompt(self, prompt: str) -> ChatFailed | None:
        try:
            await self.complete(prompt, ONE_TOKEN, 0)
        except ChatFailed as failed:
            return failed
        return None


def _require_ok(response: httpx2.Response) -> httpx2.Response:
    if response.status_code != httpx2.codes.OK:
        raise DriverError(f"answers {response.status_code} at {response.url.path}")
    return response


def _find_free_ports(count: int) -> list[int]:
    """Find `count` different ports of 127.0.0.1 on which no process listens now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
