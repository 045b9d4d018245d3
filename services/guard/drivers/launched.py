"""Model servers that the guard launches: their programs, versions, files and processes."""

import asyncio
import json
import logging
import os
import secrets
import shutil
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, ExitStack, suppress
from functools import partial
from importlib.metadata import Distribution
from pathlib import Path
from re import Pattern
from typing import Any

import httpx2
import psutil

from mathrag.messages import redact
from services.guard.drivers.ports import DriverError, ModelServer
from shared.calls import Decoding, ModelAnswer, Prompt
from shared.headers import authorization
from shared.models import commands, files, metadata
from shared.models.chat import BY_BACKEND, ChatFailed, PromptCut, label_options
from shared.models.commands import LaunchRequest, Page, Program
from shared.models.metadata import MetadataError
from shared.processes.children import die_with
from shared.replies import FailureKind
from shared.runtime.pins import ModelIdentity
from shared.settings import Device, Model
from shared.shapes import Architecture

STOP_S = 10.0
"""For a program to end its children itself; then all processes are killed."""
GONE_S = 5.0
"""For killed processes to be gone."""
TREE_POLL_S = 0.02
MAX_LINES = 20
"""Lines of the program's output that are kept."""
MAX_LINE = 300
OWNER, TREE = "MATHRAG_SERVER_OWNER", "MATHRAG_SERVER_TREE"

_log = logging.getLogger(__name__)


class ProcessTree:
    """A program that `start` has started, with its child processes, such as shards and engines: none may outlive it.

    All carry a mark in their environment, which forks and new sessions inherit. By the mark they are found even when
    the program has exited and its children were reparented.
    """

    def __init__(self, process: asyncio.subprocess.Process, output: int, mark: str) -> None:
        self._process = process
        self._mark = mark
        self._last_lines: deque[str] = deque(maxlen=MAX_LINES)
        self._reader = asyncio.create_task(self._read_output(output))

    @property
    def pid(self) -> int:
        """Process id of the program."""
        return self._process.pid

    @property
    def exit_status(self) -> int | None:
        """Return code of the program."""
        return self._process.returncode

    @property
    def ending(self) -> str:
        """How the program ended, such as "with 1" or "by SIGKILL"."""
        status = self.exit_status
        if status is None or status >= 0:
            return f"with {status}"
        killed_by = signal.Signals(-status)
        why = ", an instruction that this processor lacks: install another build" if killed_by is signal.SIGILL else ""
        return f"by {killed_by.name}{why}"

    @property
    def alive(self) -> bool:
        """Return whether the program runs."""
        return self.exit_status is None

    async def wait_exited(self) -> None:
        """Return when the program has exited."""
        await self._process.wait()

    async def read_last_output(self) -> str:
        """Return the last lines of its output, on one line and without secrets."""
        if not self.alive:  # the rest of the pipe; children that live on may keep it open
            await asyncio.wait([self._reader], timeout=1)
        return redact(" | ".join(self._last_lines)) or "nothing"

    async def end(self) -> None:
        """End the program and its children, and return when all have exited.

        Raises:
            DriverError: a process does not end.
        """
        if self.alive:
            self._process.terminate()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), STOP_S)
        await asyncio.to_thread(_kill_marked, TREE, self._mark)
        await self._process.wait()
        self._reader.cancel()
        await asyncio.wait([self._reader])

    def memory_mib(self) -> float | None:
        """Return the proportional set size of all its processes in MiB; None if nothing can be measured."""
        found = 0
        for process in find_marked(TREE, self._mark):
            with suppress(psutil.Error):
                found += process.memory_full_info().pss
        return found / 2**20 if found else None

    async def _read_output(self, output: int) -> None:
        """Read the program's output, so that it never blocks on a full pipe; lines are cut at `MAX_LINE`."""
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, os.fdopen(output, "rb"))
        try:
            while read := await reader.read(1 << 16):
                lines = read.decode(errors="replace").splitlines()
                self._last_lines.extend(line[:MAX_LINE] for line in lines if line.strip())
                _log.debug("process %d: %s", self.pid, lines)
        finally:
            transport.close()


async def start(arguments: Sequence[str], environment: Mapping[str, str], owner: str) -> ProcessTree:
    """Start a program that ends with this process; it inherits the environment without our settings and secrets.

    Raises:
        DriverError: it cannot be started.
    """
    mark = secrets.token_urlsafe(12)
    # Our own pipe: with one of asyncio's, `wait` would also wait for all children that hold it open.
    output, end = os.pipe()
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments,
            env={**inherit_environment(), **environment, OWNER: owner, TREE: mark},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=end,
            stderr=end,
            start_new_session=True,
            # SIGTERM, so that it takes its children along.
            preexec_fn=partial(die_with, os.getpid(), signal.SIGTERM),
        )
    except OSError as error:
        os.close(output)
        raise DriverError(f"cannot be started: {arguments[0]}: {error.strerror}; correct `command`") from error
    finally:
        os.close(end)
    return ProcessTree(process, output, mark)


def inherit_environment() -> dict[str, str]:
    """Return this process's environment without MATHRAG_* settings, which hold secrets."""
    return {name: value for name, value in os.environ.items() if not name.startswith("MATHRAG_")}


def find_marked(name: str, value: str) -> Iterator[psutil.Process]:
    """Find the processes that have `name` set to `value` in their environment."""
    for process in psutil.process_iter(["environ"]):
        if (process.info["environ"] or {}).get(name) == value:
            yield process


async def end_leftovers(owner: str) -> None:
    """Kill all processes that `owner` has started.

    Raises:
        DriverError: a process does not end.
    """
    await asyncio.to_thread(_kill_marked, OWNER, owner)


def _kill_marked(name: str, value: str) -> None:
    """Kill until none is left, since one may have forked in the meantime. Zombies have no environment and do not
    count."""
    deadline = time.monotonic() + GONE_S
    while found := list(find_marked(name, value)):
        if time.monotonic() > deadline:
            raise DriverError(f"processes {[process.pid for process in found]} do not end; end them by hand")
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        time.sleep(TREE_POLL_S)


VERSION_ANSWER_S = 300.0
"""`vllm --version` imports all of PyTorch first, which takes a minute on a slow host."""

_printed: dict[tuple[Path, int], str] = {}


async def find_version(path: Path, program: Program) -> str:
    """Return the version of a program: that of its Python package, else what `--version` prints, which is cached.

    Raises:
        DriverError: it prints none.
    """
    if program.package and (found := await asyncio.to_thread(_read_package_version, path, program.package)):
        return found
    key = path, (await asyncio.to_thread(path.stat)).st_mtime_ns
    if key not in _printed:
        _printed[key] = await _run_version(path, program.version_pattern)
    return _printed[key]


def _read_package_version(path: Path, package: str) -> str | None:
    """Read the version of `package` from the environment of the Python script at `path`; None if it is another file."""
    with path.open("rb") as opened:
        interpreter = opened.readline(1 << 10)
    if not (interpreter.startswith(b"#!") and b"python" in interpreter):
        return None
    sites = [str(site) for site in path.resolve().parents[1].glob("lib/python3*/*-packages")]
    found = {each.version for each in Distribution.discover(name=package, path=sites)}
    return found.pop() if len(found) == 1 else None


async def _run_version(path: Path, version_pattern: Pattern[str]) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            path, "--version", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, env=inherit_environment(), preexec_fn=partial(die_with, os.getpid()),
        )  # fmt: skip
    except OSError as error:
        raise DriverError(f"`{path} --version` does not answer: {error}") from error
    try:
        output, _ = await asyncio.wait_for(process.communicate(), VERSION_ANSWER_S)
    except TimeoutError as error:
        raise DriverError(f"`{path} --version` does not answer within {VERSION_ANSWER_S:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    text = output.decode(errors="replace")
    if (found := version_pattern.search(text)) is None:
        raise DriverError(f"`{path} --version` prints {text[:200]!r}, which contains no version")
    return found[1]


async def digest(path: Path) -> str:
    """Return the SHA-256 of a file or a folder.

    Raises:
        DriverError: the path does not exist.
    """
    try:
        return await asyncio.to_thread(files.digest, path)
    except files.WeightsMissing as missing:
        raise DriverError(str(missing)) from missing


async def digest_named_files(arguments: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the digests of the files that a command line names, such as a chat template, as options of a model.

    Empty if it names none.
    """
    paths = [(each, Path(each.rpartition("=")[2])) for each in arguments]
    found = {each: await digest(path) for each, path in paths if path.is_file() or ("/" in each and path.is_dir())}
    return {"files": found} if found else {}


async def read_architecture(name: str, path: Path) -> Architecture | None:
    """Read the architecture from a file's header or a folder's `config.json`; None if these cannot be read."""
    try:
        return await asyncio.to_thread(metadata.read_architecture, path)
    except MetadataError as error:
        _log.warning("model %r: its footprint cannot be estimated: %s", name, error)
        return None


class WatchedWeights:
    """Weights that a server was started from, with their digest and signature from before the start."""

    def __init__(self, path: Path, digest_: str, seen: files.Signature) -> None:
        self._path = path
        self._digest = digest_
        self._seen = seen
        self.replaced = False
        """Whether a check has found other weights; never reset."""

    async def confirm(self) -> bool:
        """Tell whether the bytes are the same; they are hashed again only if size, times or inode differ."""
        if self.replaced:
            return False
        try:
            # A few `stat` calls for each reply: a thread would cost more.
            signature = files.read_signature(self._path)
            if signature != self._seen and await digest(self._path) != self._digest:
                _log.error("%s was replaced while it was resident; its replies are discarded", self._path)
                self.replaced = True
            self._seen = signature
        except (OSError, DriverError) as error:
            _log.error("%s cannot be read any more while it is resident: %s", self._path, error)
            self.replaced = True
        return not self.replaced


async def watch_weights(path: Path) -> WatchedWeights:
    """Hash the weights at `path` and return them for later checks.

    Raises:
        DriverError: the path does not exist.
    """
    try:
        signature = files.read_signature(path)
    except files.WeightsMissing as missing:
        raise DriverError(str(missing)) from missing
    return WatchedWeights(path, await digest(path), signature)


CHUNK = 4 << 20
"""Bytes that are read between two checks whether to stop."""
RESERVE = 1 << 30
"""Bytes of memory that must stay available, so that reading ahead evicts no other pages."""


async def read_ahead(path: Path) -> int:
    """Read a file, or all files of a folder, into the page cache, and return the bytes read: 0 if memory is short.

    A cancellation ends it at the next chunk.
    """
    stopping = threading.Event()
    # Its own thread, since a lowered priority cannot be raised again.
    executor = ThreadPoolExecutor(1, "read-ahead", initializer=_lower_priority)
    try:
        return await asyncio.get_running_loop().run_in_executor(executor, _read_all, path, stopping)
    finally:
        stopping.set()
        executor.shutdown(wait=False)


def _read_all(path: Path, stopping: threading.Event) -> int:
    try:
        paths = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        size = sum(each.stat().st_size for each in paths)
        if psutil.virtual_memory().available < size + RESERVE:
            return 0
        began = time.monotonic()
        done = sum(_read(each, stopping) for each in paths)
    except OSError as error:
        _log.warning("cannot read ahead: %s", error)
        return 0
    if not stopping.is_set():
        _log.info("read %d MiB ahead in %.1f s", done >> 20, time.monotonic() - began)
    return done


def _read(file: Path, stopping: threading.Event) -> int:
    """Read a file, discard its bytes, which stay in the kernel's page cache, and return how many there were."""
    buffer, done = bytearray(CHUNK), 0
    with file.open("rb", buffering=0) as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)
        while not stopping.is_set() and (count := opened.readinto(buffer)):
            done += count
    return done


def _lower_priority() -> None:
    """Give this thread the lowest priority for I/O and for the processor."""
    thread = threading.get_native_id()
    with suppress(psutil.Error, OSError):
        psutil.Process(thread).ionice(psutil.IOPRIO_CLASS_IDLE)
        os.setpriority(os.PRIO_PROCESS, thread, 19)


POLL_S = 0.1
ANSWER_S = 5.0
"""Timeout of a request for a page that describes the server."""
ONE_TOKEN = Decoding(max_tokens=1)


class ExternalProgramDriver:
    """Driver `process` for external programs: `llama-server`, text-generation-inference and vLLM.

    The guard starts the program for one model and ends it to free the device. Before a residency opens, the program
    must have named its model, refused a prompt that does not fit, and answered one that does.

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
        backend, version = self._program.backend, await self._read_version()
        try:
            labels = label_options(constrained=self._model.constrain_labels, backend=backend, version=version)
        except ValueError as error:
            raise DriverError(f"model {self._name!r}: {error}") from error
        options = {"context": self._model.context, "parallel": self._model.parallel, "model": self._model.hub}
        return ModelIdentity(
            name=self._name,
            backend=backend,
            digest=await digest(path) if (path := self._model.path) else self._model.revision,
            version=version,
            options={
                **options,
                **commands.deterministic_options(self._model),
                "arguments": [*command[1:], *self._program.model_first, *self._program.arguments],
                **await digest_named_files(command[1:]),
                **commands.environment_options(inherit_environment()),
                **labels,
                "sampling": dict(BY_BACKEND[backend]),
            },
            device=self._device.id,
            needs_lease=True,
            footprint_mib=self._model.footprint_mib,
        )

    async def take_over(self) -> None:
        """End the programs that a killed guard has left running, of this model and of others."""
        await end_leftovers(self._owner)

    async def architecture(self) -> Architecture | None:
        """Read the architecture from local weights; None for a model of the hub."""
        return await read_architecture(self._name, self._model.path) if self._model.path else None

    async def warm(self) -> None:
        """Read the weights into the page cache, so that the load does not wait for the disk."""
        if self._model.path is not None:
            await read_ahead(self._model.path)

    async def start(self, parallel: int | None = None) -> ModelServer:
        """Start the program, wait until it is ready, and verify the model that it serves."""
        return await self.launch(parallel or self._model.parallel)

    async def launch(self, parallel: int) -> "ExternalProgramServer":
        """Start the program with `parallel` slots and return its server.

        Raises:
            DriverError: it did not become ready; the message says why.
        """
        try:
            request = LaunchRequest(self._name, self._model, parallel)
            key, (port, spare) = secrets.token_urlsafe(16), _find_free_ports(2)
            launch = commands.build_launch(request, port=port, spare=spare, key=key)
            weights = await watch_weights(self._model.path) if self._model.path else None
            async with AsyncExitStack() as stack:
                tree = await start(launch.arguments, launch.environment, self._owner)
                server = ExternalProgramServer(tree, f"http://127.0.0.1:{port}", key, request, weights)
                stack.push_async_callback(server.stop)
                await self._wait_until_ready(self._await_ready(server), tree)
                stack.pop_all()
                return server
        except DriverError as error:
            raise DriverError(f"model {self._name!r}: its server {error}") from error
        except httpx2.HTTPError as error:
            raise DriverError(f"model {self._name!r}: its server broke the connection: {error!r}") from error

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
            raise DriverError(
                f"reports version {version}, but its `--version` prints something else; correct `command`"
            )
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
        return await find_version(Path(found), self._program)


class ExternalProgramServer:
    """A program that serves one model."""

    def __init__(
        self, tree: ProcessTree, url: str, key: str, request: LaunchRequest, weights: WatchedWeights | None
    ) -> None:
        self.request = request
        self._weights = weights
        self._tree = tree
        from shared.models.openai_compatible import OpenAICompatible  # 6 MiB, which an idle guard does not need

        self._chat = OpenAICompatible(
            url, model=request.name, api_key=key, timeout_s=request.model.call_timeout_s, backend=request.backend
        )
        self._client = httpx2.AsyncClient(base_url=url, headers=authorization(key), timeout=ANSWER_S, trust_env=False)

    @property
    def pid(self) -> int | None:
        return self._tree.pid

    @property
    def alive(self) -> bool:
        """Return whether the program runs and its weights were not replaced."""
        return self._tree.alive and not (self._weights and self._weights.replaced)

    @property
    def died(self) -> bool:
        return not self._tree.alive

    @property
    def exit_status(self) -> int | None:
        return self._tree.exit_status

    async def complete(
        self, prompt: Prompt, decoding: Decoding, seed: int, logprobs: int = 0, choices: Sequence[str] = ()
    ) -> ModelAnswer:
        return await self._chat.complete(prompt, decoding, seed, logprobs, choices)

    async def confirm(self) -> bool:
        """Check that the weights are unchanged; nothing else of the guard's own program can change."""
        return self._weights is None or await self._weights.confirm()

    async def wait_exited(self) -> None:
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
                raise DriverError(f"does not answer with a JSON object at {path}: {error}") from error
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
            raise DriverError(f"reports another error for a prompt that is too long: {refusal}")
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
        raise DriverError(f"answers with status {response.status_code} at {response.url.path}")
    return response


def _find_free_ports(count: int) -> list[int]:
    """Find `count` different ports of 127.0.0.1 on which no process listens now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
