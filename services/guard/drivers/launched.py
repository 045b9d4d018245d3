"""Driver `process` for programs of others: llama.cpp's `llama-server`, text-generation-inference, vLLM.

The guard starts the program for one model and ends it to free the device. What it serves is not taken on trust: before
a residency opens, the program has named its model, refused a prompt that does not fit, and answered one that does.
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
from services.guard.drivers.ports import DriverError, Server
from services.guard.drivers.trees import Tree
from services.guard.page_cache import read_ahead
from shared.bearer import authorization
from shared.contracts.architecture import Architecture
from shared.contracts.calls import Decoding
from shared.contracts.guard import ModelAnswer
from shared.contracts.replies import FailureKind
from shared.device_settings import Device
from shared.model_settings import Model
from shared.models import command_lines
from shared.models.chat import ChatFailed
from shared.models.command_lines import Asked, Page
from shared.models.openai_compatible import OpenAICompatible, PromptCut
from shared.models.sampling import BY_BACKEND
from shared.runtime.models import ModelIdentity

LOOK_S = 0.1
ANSWER_S = 5.0
"""Of a page that says what is served."""
ONE_TOKEN = Decoding(max_tokens=1)


class LaunchedDriver:
    """One model with a program to serve it. `owner`: a mark of this guard, the same after its restart."""

    def __init__(self, name: str, model: Model, device: Device, owner: str) -> None:
        self._name = name
        self._model = model
        self._device = device
        self._owner = owner
        try:
            self._program = command_lines.program(model)
        except ValueError as error:
            raise DriverError(f"model {name!r}: {error}") from error

    async def identify(self) -> ModelIdentity:
        """The weights' digest or the hub's commit, what `--version` prints, and all arguments that change a reply, with
        the files that they name and the settings that the program finds in the environment."""
        command = command_lines.command(self._model)
        options = {"context": self._model.context, "parallel": self._model.parallel, "model": self._model.hub}
        return ModelIdentity(
            name=self._name,
            backend=self._program.backend,
            digest=await files.digest(path) if (path := self._model.path) else self._model.revision,
            version=await self._version(),
            options={
                **options,
                **command_lines.deterministic(self._model),
                "arguments": [*command[1:], *self._program.model_first, *self._program.arguments],
                **await files.named_in(command[1:]),
                **command_lines.settings_in(trees.inherited()),
                "sampling": dict(BY_BACKEND[self._program.backend]),
            },
            device=self._device.id,
            needs_lease=True,
            footprint_mib=self._model.footprint_mib,
        )

    async def take_over(self) -> None:
        """End what a guard that was killed has left, of this model or of another one."""
        await trees.end_leftovers(self._owner)

    async def architecture(self) -> Architecture | None:
        """Of weights that lie here; of the hub's nothing is told."""
        return await files.architecture(self._name, self._model.path) if self._model.path else None

    async def warm(self) -> None:
        """The file, or the folder: what is in the page cache is not read again."""
        if self._model.path is not None:
            await read_ahead(self._model.path)

    async def start(self, parallel: int | None = None) -> Server:
        """Start the program, wait until it is ready, and see that it serves what it was started for."""
        return await self.launched(parallel or self._model.parallel)

    async def launched(self, parallel: int) -> "LaunchedServer":
        """A server that was just started.

        Raises:
            DriverError: it did not come up, and why.
        """
        try:
            return await self._started(parallel)
        except DriverError as error:
            raise DriverError(f"model {self._name!r}: its server {error}") from error
        except httpx2.HTTPError as error:
            raise DriverError(f"model {self._name!r}: its server broke off: {error!r}") from error

    async def _started(self, parallel: int) -> "LaunchedServer":
        asked = Asked(self._name, self._model, parallel)
        key, (port, spare) = secrets.token_urlsafe(16), _free_ports(2)
        launch = command_lines.launch(asked, port=port, spare=spare, key=key)
        weights = await files.watched(self._model.path) if self._model.path else None
        async with AsyncExitStack() as stack:
            tree = await trees.start(launch.arguments, launch.environment, self._owner)
            server = LaunchedServer(tree, f"http://127.0.0.1:{port}", key, asked, weights)
            stack.push_async_callback(server.stop)
            await self._in_time(self._up(server), tree)
            stack.pop_all()
            return server

    async def _up(self, server: "LaunchedServer") -> None:
        while not await server.is_ready():  # noqa: ASYNC110 - it tells nobody that it has changed
            await asyncio.sleep(LOOK_S)
        await self._verify(server)

    async def _verify(self, server: "LaunchedServer") -> None:
        """It serves what was asked for, by the version that was registered, and cuts no prompt in silence."""
        page = await server.page(self._program.pages)
        try:
            problem, version = self._program.misfit(page, server.asked), self._program.version(page)
        except (KeyError, TypeError, ValueError) as error:
            raise DriverError(f"says nothing readable of what it serves: {error!r}") from error
        if problem:
            raise DriverError(problem)
        if version not in await self._version():
            raise DriverError(f"is version {version}, which its `--version` does not print; correct `command`")
        await server.prove()

    async def _in_time(self, coming: Coroutine[Any, Any, None], tree: Tree) -> None:
        """Wait for the server as long as it may take, and no longer than its program lives."""
        dying, up = asyncio.create_task(tree.exited()), asyncio.create_task(coming)
        try:
            within_s = self._device.load_timeout_of(self._model)
            await asyncio.wait((dying, up), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
            if dying.done():
                raise DriverError(f"ended {tree.ending} while it was loading: {await tree.last_words()}")
            if not up.done():
                said = (
                    f"was not ready within the {within_s:g} s of `device.load_timeout_s`; raise it if it needs longer"
                )
                raise DriverError(f"{said}: {await tree.last_words()}")
            up.result()
        finally:
            for task in (dying, up):
                task.cancel()
            await asyncio.wait((dying, up))

    async def _version(self) -> str:
        executable = command_lines.command(self._model)[0]
        found = shutil.which(executable)
        if found is None:
            raise DriverError(f"model {self._name!r}: no program {executable!r}; install it, or name it by `command`")
        return await versions.of(Path(found), self._program)


class LaunchedServer:
    """A program that serves one model."""

    def __init__(self, tree: Tree, url: str, key: str, asked: Asked, weights: files.Watched | None) -> None:
        self.asked = asked
        self._weights = weights
        self._tree = tree
        self._chat = OpenAICompatible(
            url, model=asked.name, api_key=key, timeout_s=asked.model.call_timeout_s, sampling=asked.sampling
        )
        self._client = httpx2.AsyncClient(
            base_url=url, headers=authorization(key), timeout=ANSWER_S, trust_env=False
        )  # fmt: skip

    @property
    def pid(self) -> int | None:
        """The program."""
        return self._tree.pid

    @property
    def alive(self) -> bool:
        """Whether the program runs, and serves what it was started for."""
        return self._tree.alive and not (self._weights and self._weights.replaced)

    @property
    def died(self) -> bool:
        """Whether the program is gone."""
        return not self._tree.alive

    @property
    def exit_status(self) -> int | None:
        """The program's return code."""
        return self._tree.exit_status

    async def complete(self, prompt: str, decoding: Decoding, seed: int, logprobs: int = 0) -> ModelAnswer:
        """Answer one prompt."""
        return await self._chat.complete(prompt, decoding, seed, logprobs)

    async def confirm(self) -> bool:
        """The program is the guard's own; the files that it reads may be replaced."""
        return self._weights is None or await self._weights.confirm()

    async def exited(self) -> None:
        """Return when the program is gone."""
        await self._tree.exited()

    async def stop(self) -> None:
        """End the program and all that it has started."""
        await self._chat.close()
        await self._client.aclose()
        await self._tree.end()

    def memory_mib(self) -> float | None:
        """Of all its processes, on the host."""
        return self._tree.memory_mib()

    async def is_ready(self) -> bool:
        """Whether it says that it can answer."""
        try:
            return bool((await self._client.get("/health")).status_code == httpx2.codes.OK)
        except httpx2.TransportError:
            return False

    async def page(self, paths: Iterable[str]) -> Page:
        """What it says of itself there, as one.

        Raises:
            DriverError: it does not say it.
        """
        found: dict[str, Any] = {}
        for path in paths:
            try:
                found |= json.loads(await self.text(path))
            except (ValueError, TypeError) as error:
                raise DriverError(f"says nothing readable at {path}: {error}") from error
        return found

    async def text(self, path: str) -> str:
        """What it says there.

        Raises:
            DriverError: it does not say it.
        """
        return _well(await self._client.get(path)).text

    async def post(self, path: str) -> None:
        """Tell it to do something, however long that takes.

        Raises:
            DriverError: it does not.
        """
        _well(await self._client.post(path, timeout=None))

    async def prove(self) -> None:
        """Of a prompt that cannot fit it says so, and one that fits it answers.

        Raises:
            DriverError: it does not.
        """
        too_long = " ".join(map(str, range(self.asked.model.context + 1)))
        refusal = await self._failure(too_long)
        if refusal is None or isinstance(refusal, PromptCut):
            raise DriverError("cuts prompts that do not fit, in silence; see its arguments in `command`")
        if refusal.kind is not FailureKind.CONTEXT_EXCEEDED:
            raise DriverError(f"does not say that a prompt is too long: {refusal}")
        if (failed := await self._failure("1 + 1 =")) is not None:
            raise DriverError(f"is ready and does not answer: {failed}")

    async def _failure(self, prompt: str) -> ChatFailed | None:
        try:
            await self.complete(prompt, ONE_TOKEN, 0)
        except ChatFailed as failed:
            return failed
        return None


def _well(response: httpx2.Response) -> httpx2.Response:
    if response.status_code != httpx2.codes.OK:
        raise DriverError(f"answers {response.status_code} at {response.url.path}")
    return response


def _free_ports(count: int) -> list[int]:
    """Different ports of 127.0.0.1 that nobody listens on now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
