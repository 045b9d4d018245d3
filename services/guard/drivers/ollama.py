"""Models on an Ollama server, which the guard does not own: it unloads, loads and evicts at anybody's word.

So nothing that it says is believed once: what is resident is verified before a load, after it, every few seconds while
a residency is open, and after the unload; every call says with which options the model is to be loaded.
"""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress

from services.guard.drivers.confirmation import Confirmation
from services.guard.drivers.ollama_looks import MIB, Wanted, gone, look
from services.guard.drivers.ports import DriverError
from shared.contracts.architecture import Architecture
from shared.contracts.calls import Decoding
from shared.contracts.guard import ModelAnswer
from shared.contracts.replies import FailureKind
from shared.device_settings import Device
from shared.model_settings import Model
from shared.models.chat import ChatFailed
from shared.models.metadata import MetadataError
from shared.models.metadata import ollama as metadata
from shared.models.ollama import DEFAULT_URL, FIXED, KEEP_S, Ollama, OllamaFailed, Resident, full_tag
from shared.models.ollama_answers import Reloaded, Removed, RunnerDied
from shared.models.ollama_orphans import orphans
from shared.models.sampling import OLLAMA
from shared.runtime.models import ModelIdentity

PROBE_S = 2.0
"""Between two looks at what is resident."""
SILENCES = 3
"""Looks in a row that a busy server may leave without an answer."""
BATCH = 512
"""Ollama's own default; said all the same, as what is not said may change with free memory."""

_held: dict[str, dict[str, str]] = defaultdict(dict)
"""By server, tag and digest of what this guard has loaded and not yet seen gone."""
_log = logging.getLogger(__name__)


def tags(models: Mapping[str, Model]) -> frozenset[str]:
    """The models of the configuration that a server may hold for us."""
    return frozenset(full_tag(model.tag or name) for name, model in models.items() if model.driver == "ollama")


class OllamaDriver:
    """One pulled model. `ours`: all tags that this guard may have left on the server."""

    def __init__(self, name: str, model: Model, device: Device, ours: frozenset[str]) -> None:
        self._name = name
        self._model = model
        self._device = device
        self._ours = ours
        self._tag = full_tag(model.tag or name)
        self._on_gpu = not device.id.startswith("cpu")

    async def identify(self) -> ModelIdentity:
        """The manifest's digest, the server's version, and all options of a load: a new pull is another model."""
        try:
            async with self._api() as api:
                version, pulled = await api.version(), await api.pulled(self._tag)
        except OllamaFailed as failed:
            raise self._error(failed) from failed
        quantisation = {"quantisation": pulled.details.quantization_level}
        return ModelIdentity(
            name=self._name,
            backend="ollama",
            digest=pulled.digest,
            version=version,
            options={
                **self._options(),
                **FIXED,
                **quantisation,
                "parallel": self._model.parallel,
                "sampling": dict(OLLAMA),
            },
            device=self._device.id,
            needs_lease=True,
            footprint_mib=self._model.footprint_mib,
        )

    async def take_over(self) -> None:
        """Have the model unloaded, listed or not: whether its memory comes back is looked at before the next load."""
        try:
            async with self._api() as api:
                await api.unload(self._tag)
        except OllamaFailed as failed:
            _log.warning("model %r: whether something was left of it is not known: %s", self._name, failed)

    async def architecture(self) -> Architecture | None:
        """As the server shows it."""
        try:
            async with self._api() as api:
                return metadata.architecture(await api.shown(self._tag), (await api.pulled(self._tag)).size)
        except (OllamaFailed, MetadataError) as error:
            _log.warning("model %r: its footprint cannot be estimated: %s", self._name, error)
            return None

    async def warm(self) -> None:
        """Nothing to read ahead."""

    async def start(self, parallel: int | None = None) -> "OllamaServer":  # noqa: ARG002 - as below
        """Load it onto a server that holds nothing else, and see that it is there as it was asked for.

        Slots are the server's, by OLLAMA_NUM_PARALLEL; fewer of ours is what the guard sends at once.
        """
        async with AsyncExitStack() as stack:
            api = self._api()
            if self._tag in _held[api.url]:
                raise self._error(f"{self._tag} is loaded under another name already; use one name for both")
            stack.push_async_callback(self._give_up, api)
            try:
                async with asyncio.timeout(self._device.load_timeout_s):
                    server = await self._started(api)
            except (OllamaFailed, ChatFailed, DriverError) as failed:
                raise self._error(failed) from failed
            except TimeoutError as error:
                raise self._error(f"not loaded within {self._device.load_timeout_s:g} s") from error
            stack.pop_all()
            return server

    async def _started(self, api: Ollama) -> "OllamaServer":
        pulled = await api.pulled(self._tag)
        await self._clear(api)
        wanted = Wanted(tag=self._tag, pulled=pulled, context=self._model.context, on_gpu=self._on_gpu)
        _held[api.url][self._tag] = wanted.pulled.digest
        await api.load(self._tag)
        await api.chat(self._tag, "1 + 1 =", Decoding(max_tokens=1), 0)
        if await api.cuts(self._tag):
            raise DriverError(f"{api.url} cuts what is longer than `context` in silence; take another version")
        found, problem = await look(api, wanted, _held[api.url].values())
        if problem:
            raise DriverError(problem)
        return OllamaServer(api, wanted, found, self._device.free_timeout_s)

    async def _clear(self, api: Ollama) -> None:
        """A guard that was killed unloads nothing: what of ours is left goes, and what is others' is named."""
        if left_over := await asyncio.to_thread(orphans, api.url):
            raise DriverError("; ".join(each.said for each in left_over))
        left = [each for each in await api.resident() if each.digest not in _held[api.url].values()]
        for each in left:
            if each.name not in self._ours:
                raise DriverError(f"{api.url} has loaded {each.name}, not for this guard: ollama stop {each.name}")
            with suppress(OllamaFailed):  # its tag may have been removed
                await api.unload(each.name)
        if not await gone(api, {each.digest for each in left}, self._device.free_timeout_s):
            names = ", ".join(each.name for each in left)
            raise DriverError(f"{api.url} does not unload {names}; if it stays for {KEEP_S} s, restart the server")

    async def _give_up(self, api: Ollama) -> None:
        """Leave nothing of a load that failed."""
        _held[api.url].pop(self._tag, None)
        with suppress(OllamaFailed):
            await api.unload(self._tag)
        await api.close()

    def _api(self) -> Ollama:
        return Ollama(self._model.url or DEFAULT_URL, self._options(), self._model.call_timeout_s)

    def _options(self) -> dict[str, int]:
        """The runner options of every call; on a GPU Ollama decides how many layers fit, and all of them must."""
        options = {"num_ctx": self._model.context, "num_batch": min(BATCH, self._model.context)}
        return options if self._on_gpu else {**options, "num_gpu": 0}

    def _error(self, what: object) -> DriverError:
        return DriverError(f"model {self._name!r}: {what}")


class OllamaServer:
    """A model that was seen to be resident, and is looked at until it is stopped."""

    pid = None
    exit_status = None

    def __init__(self, api: Ollama, wanted: Wanted, found: Sequence[Resident], patience_s: float) -> None:
        self._api = api
        self._wanted = wanted
        self._patience_s = patience_s
        self._bytes = sum(each.size for each in found if each.digest == wanted.pulled.digest)
        self._stopped = False
        self._lost = asyncio.Event()
        self._died = False
        self._doubt = asyncio.Event()
        """Set to look at once."""
        self._confirmation = Confirmation(self._confirmed)
        self._watch = asyncio.create_task(self._watch_it())

    @property
    def alive(self) -> bool:
        """Whether it was resident at the last look."""
        return not self._lost.is_set()

    @property
    def died(self) -> bool:
        """Whether its runner died, by the server's own words: a call that ran on it may have killed it.

        What was evicted, stopped or removed, and what went with its server, no call has ended.
        """
        return self._died

    async def complete(self, prompt: str, decoding: Decoding, seed: int, logprobs: int = 0) -> ModelAnswer:
        """Answer one prompt; one that had the model loaded again ends the residency."""
        try:
            with self._confirmation.call():
                return await self._api.chat(self._wanted.tag, prompt, decoding, seed, logprobs)
        except RunnerDied as died:
            self._died = True
            self._lose(died.detail)
            raise
        except (Reloaded, Removed) as lost:
            self._lose(lost.detail)
            raise
        except ChatFailed as failed:
            if failed.kind in (FailureKind.CONNECTION, FailureKind.BACKEND_ERROR):
                self._doubt.set()
            raise

    async def confirm(self) -> bool:
        """Whether it is resident, and its tag is what it was, by a look that begins now or later."""
        return await self._confirmation.next()

    async def _confirmed(self) -> bool:
        try:
            return self.alive and await self._is_well()
        except OllamaFailed:
            self._doubt.set()
            return False

    async def exited(self) -> None:
        """Return when it is not resident any more as it was verified, or the server is away."""
        await self._lost.wait()

    async def stop(self) -> None:
        """Unload it and wait until it is gone; while it is not, `alive` stays true, and another stop asks once more."""
        if self._stopped:
            return
        self._watch.cancel()
        await asyncio.wait([self._watch])
        if await self._unloaded() or not self.alive:
            self._stopped = True
            self._lost.set()
            _held[self._api.url].pop(self._wanted.tag, None)
            await self._api.close()
        else:
            self._patience_s = 0
            _log.error("%s is still loaded; `ollama stop %s`, or restart Ollama", self._wanted.tag, self._wanted.tag)

    async def _unloaded(self) -> bool:
        """Whether it is gone, or its server is; of a tag that was removed nothing can be asked, only seen."""
        try:
            with suppress(OllamaFailed):
                await self._api.unload(self._wanted.tag)
            return await gone(self._api, {self._wanted.pulled.digest}, self._patience_s)
        except OllamaFailed as failed:
            _log.warning("%s: whether it is unloaded is not known: %s", self._wanted.tag, failed)
            return failed.away

    def memory_mib(self) -> float | None:
        """What the server says that it holds."""
        return self._bytes / MIB

    def _lose(self, why: str) -> None:
        if self.alive:
            _log.error("the residency is lost: %s", why)
        self._lost.set()

    async def _is_well(self) -> bool:
        """One look; what is wrong ends the residency."""
        _, problem = await look(self._api, self._wanted, _held[self._api.url].values())
        if problem:
            self._lose(problem)
        return problem is None

    async def _watch_it(self) -> None:
        silent, kept_at = 0, time.monotonic()
        while self.alive:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._doubt.wait(), PROBE_S)
            self._doubt.clear()
            try:
                if await self._is_well() and time.monotonic() - kept_at > KEEP_S / 3:
                    await self._api.keep(self._wanted.tag)
                    kept_at = time.monotonic()
                silent = 0
            except OllamaFailed as failed:
                silent += 1
                if failed.away or silent >= SILENCES:
                    self._lose(str(failed))
