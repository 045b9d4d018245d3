"""Models on an Ollama server, which the guard does not own: any client can have it load and unload models.

So the resident models are verified before a load, after it, every few seconds while a residency is open, and after the
unload; every call carries the options with which the model is to be loaded.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress

import msgspec
import psutil

from services.guard.drivers.ports import Confirmation, Driver, DriverError
from shared.calls import Decoding, ModelAnswer, Prompt
from shared.models import metadata
from shared.models.chat import OLLAMA, ChatFailed, label_options
from shared.models.metadata import MetadataError
from shared.models.ollama import (
    DEFAULT_URL,
    FIXED,
    KEEP_S,
    PADDING,
    LoadedModel,
    ModelRemoved,
    Ollama,
    OllamaFailed,
    Pulled,
    RunnerDied,
    make_full_tag,
)
from shared.models.ollama_orphans import find_orphans, find_runners, is_running
from shared.replies import FailureKind
from shared.runtime.pins import ModelIdentity
from shared.settings import Device, Model
from shared.shapes import Architecture

POLL_S = 0.2
MIB = 1 << 20


class ExpectedModel(msgspec.Struct, frozen=True, kw_only=True):
    """How a model must be resident; with `on_gpu`, all of its layers on the GPU."""

    tag: str
    pulled: Pulled
    """What the tag named when the model was loaded."""
    context: int
    on_gpu: bool


def find_deviation(
    found: Sequence[LoadedModel], pulled: Pulled | None, wanted: ExpectedModel, held: Collection[str]
) -> str | None:
    """Describe a problem of a server's resident models; None if `wanted` is resident as pinned, without foreign models.

    `pulled` is the model that the tag names now; `held` are the digests that this guard has loaded. A server keeps one
    runner per file of weights and lists it under the digest that it was loaded for. So a tag that was created again
    with another SYSTEM, TEMPLATE or PARAMETER is answered by the same runner, from another prompt.
    """
    ours = next((each for each in found if each.digest == wanted.pulled.digest), None)
    foreign = [each.name for each in found if each.digest not in held]
    if pulled is None:
        return f"{wanted.tag} was removed from the server; pull or create it again"
    if pulled.digest != wanted.pulled.digest:
        fix = "restart the guard and submit jobs for the new model, or restore the old one"
        return f"{wanted.tag} was pulled or created again; {fix}"
    if pulled.modified_at != wanted.pulled.modified_at:
        return f"{wanted.tag} was written again: it may have been another model since the last check"
    if foreign:
        how = "as well" if ours else "in its place"
        return f"{', '.join(foreign)} is loaded {how}, and not by this guard: ollama stop {foreign[0]}"
    if ours is None:
        return f"{wanted.tag} is not loaded any more: it was stopped or evicted"
    if wanted.on_gpu and ours.size_vram < ours.size:
        outside, all_of_it = (ours.size - ours.size_vram) // MIB, ours.size // MIB
        return f"{outside} of {all_of_it} MiB of {wanted.tag} are not on the GPU; lower `context` or free memory"
    if not wanted.context <= ours.context_length < wanted.context + PADDING:
        return f"{wanted.tag} has a context of {ours.context_length}, not {wanted.context}; set `context` to it"
    return None


async def inspect_residents(
    api: Ollama, wanted: ExpectedModel, held: Collection[str]
) -> tuple[Sequence[LoadedModel], str | None]:
    """Return the resident models and the deviation from `wanted`; `held` are the digests that this guard has loaded.

    Raises:
        OllamaFailed: the server does not answer.
    """
    found, listed = await asyncio.gather(api.list_resident(), api.find_pulled(wanted.tag))
    return found, find_deviation(found, listed, wanted, held)


async def wait_until_gone(api: Ollama, digests: set[str], within_s: float) -> bool:
    """Return whether the digests left the server's list in time; the list is read at least once."""
    polls = round(within_s / POLL_S)
    while digests & {each.digest for each in await api.list_resident()}:
        if polls <= 0:
            return False
        polls -= 1
        await asyncio.sleep(POLL_S)
    return True


PROBE_S = 2.0
"""Seconds between two checks of the resident models."""
MAX_UNANSWERED = 3
"""Checks in a row that a busy server may leave without an answer."""
DOUBTFUL_LOAD = 0.25
"""A call that waited longer for its model than this share of the load may have been answered by a new runner."""
DOUBTFUL_S = (0.2, 1.0)
"""Bounds of that wait: finding a loaded model takes milliseconds, and 0.2 to 0.4 s on a busy host."""
CERTAIN_LOAD = 0.5
"""It certainly was where it waited longer than this share, and the runner's process cannot be seen."""
CERTAIN_S = (0.5, 3.0)
"""Bounds of that wait: from the page cache, a model of any size loads again in a few seconds."""
BATCH = 512
"""Ollama's own default; sent all the same, since Ollama may choose another value by free memory."""

_loaded: dict[str, dict[str, str]] = defaultdict(dict)
"""By server URL, the digest of each tag that this guard has loaded and not yet seen unloaded."""
_log = logging.getLogger(__name__)


class ModelReloaded(ChatFailed):
    """The call was answered by a newly loaded runner instead of the verified one."""


def list_tags(models: Mapping[str, Model]) -> frozenset[str]:
    """List the full tags of all configured Ollama models."""
    return frozenset(make_full_tag(model.tag or name) for name, model in models.items() if model.driver == "ollama")


class OllamaDriver(Driver):
    """Drives one pulled model, whose files the server reads; `ours` are all tags that this guard may have left."""

    def __init__(self, name: str, model: Model, device: Device, ours: frozenset[str]) -> None:
        self._name = name
        self._model = model
        self._device = device
        self._ours = ours
        self._tag = make_full_tag(model.tag or name)
        self._on_gpu = not device.id.startswith("cpu")

    async def identify(self) -> ModelIdentity:
        """Identify the model by the manifest's digest, the server's version and all options of a load."""
        try:
            async with self._make_client() as api:
                version, pulled = await api.require_version(), await api.require_pulled(self._tag)
        except OllamaFailed as failed:
            raise self._make_error(failed) from failed
        quantisation = {"quantisation": pulled.details.quantization_level}
        return ModelIdentity(
            name=self._name,
            backend="ollama",
            digest=pulled.digest,
            version=version,
            options={
                **self._make_runner_options(), **FIXED, **quantisation, "parallel": self._model.parallel,
                **label_options(constrained=self._model.constrain_labels, backend="ollama", version=version),
                "sampling": dict(OLLAMA),
            },
            device=self._device.id,
            needs_lease=True,
            footprint_mib=self._model.footprint_mib,
        )  # fmt: skip

    async def find_obstacle(self) -> str | None:
        """Find an obstacle to a load on a server on which nothing is resident for this guard."""
        try:
            async with self._make_client() as api:
                held = _loaded[api.url].values()
                stuck = [each.name for each in await api.list_resident() if each.digest in held]
                return f"{api.url} does not unload {', '.join(stuck)}" if stuck else await self._find_foreign_model(api)
        except OllamaFailed as failed:
            return str(failed)

    async def take_over(self) -> None:
        """Unload the model, listed or not; whether its memory is free is verified before the next load."""
        try:
            async with self._make_client() as api:
                await api.unload(self._tag)
        except OllamaFailed as failed:
            _log.warning("model %r: cannot tell whether it is still loaded: %s", self._name, failed)

    async def architecture(self) -> Architecture | None:
        """Read the architecture from the server's description of the model; None if it gives none."""
        try:
            async with self._make_client() as api:
                shown, size = await api.show(self._tag), (await api.require_pulled(self._tag)).size
                return metadata.parse_architecture(shown, size)
        except (OllamaFailed, MetadataError) as error:
            _log.warning("model %r: its footprint cannot be estimated: %s", self._name, error)
            return None

    async def start(self, parallel: int | None = None) -> "OllamaServer":  # noqa: ARG002 - as below
        """Load the model onto a server that holds no foreign model, and verify how it is resident.

        OLLAMA_NUM_PARALLEL sets the server's slots; `parallel` only limits how many calls the guard sends at once.
        """
        async with AsyncExitStack() as stack:
            api = self._make_client()
            if self._tag in _loaded[api.url]:
                raise self._make_error(f"{self._tag} is already loaded for another entry of `models`; use one entry")
            stack.push_async_callback(self._undo_load, api)
            try:
                async with asyncio.timeout(self._device.load_timeout_s):
                    server = await self._load(api)
            except (OllamaFailed, ChatFailed, DriverError) as failed:
                raise self._make_error(failed) from failed
            except TimeoutError as error:
                raise self._make_error(
                    f"not loaded within {self._device.load_timeout_s:g} s (`device.load_timeout_s`)"
                ) from error
            stack.pop_all()
            return server

    async def _load(self, api: Ollama) -> "OllamaServer":
        pulled = await api.require_pulled(self._tag)
        # Unload the models that a killed guard has left.
        if foreign := await self._find_foreign_model(api):
            raise DriverError(foreign)
        left = [each for each in await api.list_resident() if each.digest not in _loaded[api.url].values()]
        for each in left:
            with suppress(OllamaFailed):  # its tag may have been removed
                await api.unload(each.name)
        if not await wait_until_gone(api, {each.digest for each in left}, self._device.free_timeout_s):
            names = ", ".join(each.name for each in left)
            raise DriverError(f"{api.url} does not unload {names}; if it stays for {KEEP_S} s, restart the server")
        wanted = ExpectedModel(tag=self._tag, pulled=pulled, context=self._model.context, on_gpu=self._on_gpu)
        _loaded[api.url][self._tag] = wanted.pulled.digest
        runner = RunnerProcess(api.url, await api.find_weights(self._tag))
        await runner.look_before_load()
        await api.load(self._tag)
        await api.chat(self._tag, "1 + 1 =", Decoding(max_tokens=1), 0)
        if await api.truncates_prompts(self._tag):
            raise DriverError(f"{api.url} silently truncates prompts longer than `context`; use another version")
        found, problem = await inspect_residents(api, wanted, _loaded[api.url].values())
        if problem:
            raise DriverError(problem)
        await runner.look_after_load()
        return OllamaServer(api, wanted, found, runner, self._device.free_timeout_s)

    async def _find_foreign_model(self, api: Ollama) -> str | None:
        """Find a model that is not this guard's to unload: one of another client, or of a server that was killed."""
        if left_over := await asyncio.to_thread(find_orphans, api.url):
            return "; ".join(each.said for each in left_over)
        loaded = [each for each in await api.list_resident() if each.digest not in _loaded[api.url].values()]
        foreign = next((each.name for each in loaded if each.name not in self._ours), None)
        return f"{api.url} has loaded {foreign}, not for this guard: ollama stop {foreign}" if foreign else None

    async def _undo_load(self, api: Ollama) -> None:
        """Unload the model after a load that failed."""
        _loaded[api.url].pop(self._tag, None)
        with suppress(OllamaFailed):
            await api.unload(self._tag)
        await api.close()

    def _make_client(self) -> Ollama:
        return Ollama(self._model.url or DEFAULT_URL, self._make_runner_options(), self._model.call_timeout_s)

    def _make_runner_options(self) -> dict[str, int]:
        """Return the runner options of every call; on a GPU all layers must fit, so `num_gpu` is left to Ollama."""
        options = {"num_ctx": self._model.context, "num_batch": min(BATCH, self._model.context)}
        return options if self._on_gpu else {**options, "num_gpu": 0}

    def _make_error(self, what: object) -> DriverError:
        return DriverError(f"model {self._name!r}: {what}")


class RunnerProcess:
    """The process that holds a model; it can be seen where the server runs on this host."""

    def __init__(self, url: str, weights: str | None) -> None:
        self._url = url
        self._weights = weights
        self._others: set[psutil.Process] = set()
        """Processes that held the same weights before the load, for another server of this host."""
        self._verified: set[psutil.Process] = set()

    async def look_before_load(self) -> None:
        self._others = await self._find()

    async def look_after_load(self) -> None:
        self._verified = await self._find() - self._others

    @property
    def visible(self) -> bool:
        """Return whether it was seen after the load."""
        return bool(self._verified)

    @property
    def lost(self) -> bool:
        """Return whether it was seen, and has ended."""
        return not all(map(is_running, self._verified))

    async def count_successors(self) -> int:
        """Return the number of processes that hold the model in its place: the server has loaded it again."""
        return len(await self._find() - self._verified - self._others) if self.lost else 0

    async def _find(self) -> set[psutil.Process]:
        return set(await asyncio.to_thread(find_runners, self._url, self._weights)) if self._weights else set()


class OllamaServer:
    """A model that was verified as resident and is checked every few seconds until it is stopped."""

    pid = None
    exit_status = None

    def __init__(
        self, api: Ollama, wanted: ExpectedModel, found: Sequence[LoadedModel], runner: RunnerProcess, patience_s: float
    ) -> None:
        self._api = api
        self._wanted = wanted
        self._runner = runner
        self._doubtful_s = _clamp(DOUBTFUL_LOAD * api.load_s, *DOUBTFUL_S)
        self._certain_s = _clamp(CERTAIN_LOAD * api.load_s, *CERTAIN_S)
        self._reloads = 0
        self._patience_s = patience_s
        self._bytes = sum(each.size for each in found if each.digest == wanted.pulled.digest)
        self._stopped = False
        self._lost = asyncio.Event()
        self._died = False
        self._doubt = asyncio.Event()
        """Set to check at once."""
        self._confirmation = Confirmation(self._check_residency)
        self._watcher = asyncio.create_task(self._watch_residency())

    @property
    def alive(self) -> bool:
        """Return whether it was resident at the last check."""
        return not self._lost.is_set()

    @property
    def died(self) -> bool:
        """Return whether the server reported, or its process shows, that the model's runner died, maybe because of a
        call.

        False for a model that was evicted, stopped or removed, or whose server went away: no call caused that.
        """
        return self._died

    async def complete(
        self, prompt: Prompt, decoding: Decoding, seed: int, logprobs: int = 0, choices: Sequence[str] = ()
    ) -> ModelAnswer:
        """Answer one prompt; a call that made the server load the model again ends the residency."""
        try:
            with self._confirmation.track_call():
                timed = await self._api.chat(self._wanted.tag, prompt, decoding, seed, logprobs, choices)
            self._require_verified_runner(timed.load_s)
        except RunnerDied as died:
            self._died = True
            self._mark_lost(died.detail)
            raise
        except (ModelReloaded, ModelRemoved) as lost:
            self._mark_lost(lost.detail)
            raise
        except ChatFailed as failed:
            if failed.kind in (FailureKind.CONNECTION, FailureKind.BACKEND_ERROR):
                self._doubt.set()
            raise
        return timed.answer

    def _require_verified_runner(self, load_s: float) -> None:
        """Check who answered a call that waited for its model for `load_s`.

        A busy host finds a loaded model as late as an idle one loads it, so a wait alone is only a reason to look: at
        the runner's process, or, where that cannot be seen, at `/api/ps`, unless the wait was as long as a load.

        Raises:
            ModelReloaded: it was a newly loaded runner.
        """
        if load_s <= self._doubtful_s:
            return
        if self._runner.lost or (not self._runner.visible and load_s > self._certain_s):
            self._reloads = 1
            problem = f"the model was loaded again within its residency, in {load_s:.1f} s"
            raise ModelReloaded(FailureKind.CONNECTION, problem)
        self._doubt.set()

    async def count_reloads(self) -> int:
        """Return how often the server loaded the model again; at most once, since that ends the residency."""
        return max(self._reloads, await self._runner.count_successors())

    async def confirm(self) -> bool:
        """Tell whether it is resident and its tag is unchanged, by a check that begins after this call."""
        return await self._confirmation.check()

    async def _check_residency(self) -> bool:
        try:
            return self.alive and await self._is_intact()
        except OllamaFailed:
            self._doubt.set()
            return False

    async def wait_exited(self) -> None:
        """Return when the verified model is no longer resident, or the server is away."""
        await self._lost.wait()

    async def stop(self) -> None:
        """Unload it and wait until it is gone; if it is not, `alive` stays true, and another `stop` tries once more."""
        if self._stopped:
            return
        self._watcher.cancel()
        await asyncio.wait([self._watcher])
        try:
            with suppress(OllamaFailed):  # a removed tag can only be watched
                await self._api.unload(self._wanted.tag)
            is_gone = await wait_until_gone(self._api, {self._wanted.pulled.digest}, self._patience_s)
        except OllamaFailed as failed:
            _log.warning("%s: cannot tell whether it is unloaded: %s", self._wanted.tag, failed)
            is_gone = failed.away
        if is_gone or not self.alive:
            self._stopped = True
            self._lost.set()
            _loaded[self._api.url].pop(self._wanted.tag, None)
            await self._api.close()
        else:
            self._patience_s = 0
            _log.error("%s is still loaded; `ollama stop %s`, or restart Ollama", self._wanted.tag, self._wanted.tag)

    def memory_mib(self) -> float | None:
        """Return the memory that the server reported after the load."""
        return self._bytes / MIB

    def _mark_lost(self, why: str) -> None:
        if self.alive:
            _log.error("the residency has ended: %s", why)
        self._lost.set()

    async def _is_intact(self) -> bool:
        """Check the server once; a deviation ends the residency."""
        _, problem = await inspect_residents(self._api, self._wanted, _loaded[self._api.url].values())
        if problem is None and self._runner.lost:
            problem = f"the runner of {self._wanted.tag} has ended, and the model loaded now was not verified"
            # A server lists a dead runner until a call needs it, and evicts only a runner without calls.
            self._died = self._died or await self._runner.count_successors() == 0
        if problem:
            self._mark_lost(problem)
        return problem is None

    async def _watch_residency(self) -> None:
        silent, kept_at = 0, time.monotonic()
        while self.alive:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._doubt.wait(), PROBE_S)
            self._doubt.clear()
            try:
                if await self._is_intact() and time.monotonic() - kept_at > KEEP_S / 3:
                    await self._api.keep(self._wanted.tag)
                    kept_at = time.monotonic()
                silent = 0
            except OllamaFailed as failed:
                silent += 1
                if failed.away or silent >= MAX_UNANSWERED:
                    self._mark_lost(str(failed))


def _clamp(seconds: float, least: float, most: float) -> float:
    return min(most, max(least, seconds))
