"""A loopback double of the native API of Ollama, as far as our client uses it, residency and misbehaviour included.

It answers as Ollama 0.33.0-rc2 was recorded to (`tests/recorded/`, replayed by `test_ollama_recorded.py`): a runner is
known by the file of its weights, so a tag that was created again with another SYSTEM, TEMPLATE or PARAMETER is answered
by the runner that is there, while `/api/ps` keeps the old digest. What a server does on a real GPU it cannot prove.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from shared.models.ollama import make_full_tag
from tests.doubles import ollama_answers
from tests.doubles.answers import by_rule
from tests.doubles.chat_server import ChatServer, Reply, Seen, as_json, chat_server
from tests.doubles.gpu import Gpu
from tests.doubles.misbehaviour import CONTENT, MODELS, PATH, TRANSPORT, Misbehaviour
from tests.doubles.ollama_faults import ANSWERS, DEATHS, DEEDS
from tests.doubles.ollama_models import Manifest, Runner, launch, stamp

MIB = 1 << 20
RELOAD_NS = 800_000_000
"""What a reload was seen to take, of weights that lie in the page cache."""
LOADED_NS = 1_068_207
"""What finding a runner was seen to take."""
NO_MESSAGES = "json: cannot unmarshal string into Go struct field ChatRequest.messages of type []api.Message"
NO_EMBEDDINGS = "This server does not support embeddings. Start it with `--embeddings`"
FIRST_PID = 5_000_000
"""Larger than any that Linux gives."""


@dataclass
class Ollama:
    """What a server holds, and how it misbehaves; everything may be changed while it serves."""

    version: str = "0.40.2"
    pulled: dict[str, str] = field(default_factory=dict)
    """Manifest digests by full tag."""
    manifests: dict[str, Manifest] = field(default_factory=dict)
    """Whatever was pulled or created, by digest."""
    modified: dict[str, str] = field(default_factory=dict)
    """When a tag was last written."""
    runners: dict[str, Runner] = field(default_factory=dict)
    """What is resident, by weights."""
    shown: dict[str, Any] = field(default_factory=dict)
    """The answer of `/api/show`, of every model: by default nothing that a footprint could follow from."""
    loads: list[str] = field(default_factory=list)
    """Every load, by tag: also those that nobody meant."""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """Everything that was posted."""
    answer: Callable[[str], str] = by_rule
    chat: list[Reply | dict[str, Any]] = field(default_factory=list)
    """What the next calls get instead of an answer, or fields that differ in it."""
    keeps: bool = False
    """An unload is answered, and nothing happens."""
    keeps_unlisted: bool = False
    """It leaves the list, and its memory stays taken."""
    unlists_after: int = 0
    """Looks at `/api/ps` that an unloaded model still shows up in."""
    spill: int = 0
    """Bytes of a load that do not go to the GPU."""
    train_context: int = 1 << 20
    """No runner has a longer context."""
    sizes: dict[str, int] = field(default_factory=dict)
    """MiB by tag; 400 of what is not here."""
    most: int = 3
    """Models at once; the oldest is evicted."""
    hangs_on_load: bool = False
    gpu: Gpu | None = None
    """Shows what runners hold."""
    wrong: Misbehaviour = field(default_factory=lambda: Misbehaviour((*TRANSPORT, *CONTENT, *MODELS)))
    prompts: int = 0
    """How many were asked, warm-ups not counted."""
    kept: list[Runner] = field(default_factory=list)
    """Runners that nothing lists."""
    pulled_before: dict[str, str] = field(default_factory=dict)
    """What was pulled before everything was pulled again."""
    asked_to_go: set[str] = field(default_factory=set)
    """Weights."""
    _leaving: dict[str, int] = field(default_factory=dict)

    def pull(self, tag: str, content: str = "v1") -> str:
        """As `ollama pull` of other weights: the tag names this manifest from now on; what is loaded stays as it is."""
        return self.put(tag, Manifest(weights=tag + content))

    def create(self, tag: str, **changes: Any) -> str:
        """As `ollama create` under a tag that is there: the same weights with another SYSTEM, TEMPLATE or PARAMETER."""
        return self.put(tag, replace(self.manifest(tag), **changes))

    def put(self, tag: str, manifest: Manifest) -> str:
        """The tag names this manifest from now on; its digest."""
        self.manifests[manifest.digest] = manifest
        self.pulled[tag] = manifest.digest
        self.modified[tag] = stamp()
        return manifest.digest

    def manifest(self, tag: str) -> Manifest:
        """What a tag names now."""
        return self.manifests[self.pulled[make_full_tag(tag)]]

    def respond(self, seen: Seen) -> Reply:
        self._expire()
        reply = self.instruct(seen) if seen.path == PATH else self._serve(seen)
        self._show()
        return reply

    def instruct(self, seen: Seen) -> Reply:
        """Make the double misbehave, or stop that."""
        if refused := self.wrong.instruct(seen):
            return refused
        if deed := DEEDS.get(seen.json["how"]):
            deed(self)
        return self._document()

    def _document(self) -> Reply:
        return self.wrong.document(loads=self.loads, prompts=self.prompts)

    def _show(self) -> None:
        if self.gpu is not None:
            there = [*self.runners.values(), *self.kept]
            self.gpu.show({each.pid: ("/usr/bin/ollama", each.size_vram / MIB) for each in there})

    def _serve(self, seen: Seen) -> Reply:
        match seen.method, seen.path:
            case "GET", "/double":
                return self._document()
            case "GET", "/api/version":
                return as_json({"version": self.version})
            case "GET", "/api/tags":
                return as_json(
                    {"models": [self.manifest(tag).describe_in_tags(tag, self.modified[tag]) for tag in self.pulled]}
                )
            case "GET", "/api/ps":
                return as_json({"models": [runner.describe_loaded() for runner in self._resident()]})
            case _, "/api/show" | "/api/chat" | "/api/delete" | "/api/embed":
                return self._about(seen.path.removeprefix("/api/"), seen.json)
        return Reply(status=404, body=b"404 page not found", headers={"Content-Type": "text/plain"})

    def _about(self, what: str, body: dict[str, Any]) -> Reply:
        """A request that names a model."""
        name, tag = body["model"], make_full_tag(body["model"])
        if what == "chat":
            self.bodies.append(body)
        if tag not in self.pulled:
            return as_json({"error": f"model '{tag if what == 'show' else name}' not found"}, 404)
        match what:
            case "show":
                return as_json(self.manifest(tag).describe_in_show(tag) | self.shown)
            case "delete":
                del self.pulled[tag]
                return Reply()
            case "embed":
                return as_json({"error": NO_EMBEDDINGS}, 501)
        return self._chat(tag, body)

    def load(self, tag: str, options: dict[str, Any] | None = None, shift: bool = True) -> Runner:
        """What any client's call does, if the weights are not loaded so."""
        options = options or {"num_ctx": 4096}
        manifest = self.manifest(tag)
        self.loads.append(tag)
        self.runners.pop(manifest.weights, None)
        while len(self.runners) >= self.most:
            self.runners.pop(next(iter(self.runners)))
        size = self.sizes.get(tag, 400) * MIB
        on_gpu = 0 if options.get("num_gpu") == 0 else size - self.spill
        launched = launch(options, shift, self.train_context)
        made = Runner(
            tag, manifest.digest, manifest.weights, launched, size, on_gpu, launched[0], FIRST_PID + len(self.loads)
        )
        self.runners[manifest.weights] = made
        return made

    def kill(self) -> None:
        """As `kill -9` of every runner: they stay on the list until somebody asks them something."""
        for runner in self.runners.values():
            runner.alive = False

    def _resident(self) -> list[Runner]:
        for each in [each for each, looks in self._leaving.items() if looks == 0]:
            self.runners.pop(each, None)
            del self._leaving[each]
        self._leaving = {each: looks - 1 for each, looks in self._leaving.items()}
        return list(self.runners.values())

    def _expire(self) -> None:
        for each in [each for each, runner in self.runners.items() if runner.expired]:
            del self.runners[each]

    def _chat(self, tag: str, body: dict[str, Any]) -> Reply:
        if not isinstance(body["messages"], list):
            return as_json({"error": NO_MESSAGES}, 400)
        options = dict(self.manifest(tag).parameters) | body.get("options", {})
        if not isinstance(options.get("temperature", 0), int | float):
            return as_json({"error": 'option "temperature" must be of type float32'}, 500)
        weights = self.manifest(tag).weights
        if not body["messages"] and body.get("keep_alive") == 0:
            self._unload(weights)
            return self._done(body, "unload")
        if self.hangs_on_load and weights not in self.runners:
            return Reply(hang=True)
        waited = self._ready(tag, options, body.get("shift", True))
        self.runners[weights].keep(body.get("keep_alive"))
        if not body["messages"]:
            return self._done(body, "load")
        return self._answer(tag, body, waited)

    def _done(self, body: dict[str, Any], reason: str) -> Reply:
        message = {"role": "assistant", "content": ""}
        done = {"done": True, "done_reason": reason}
        return as_json({"model": body["model"], "created_at": stamp(), "message": message, **done})

    def _unload(self, gone: str) -> None:
        if gone not in self.runners:
            return
        self.asked_to_go.add(gone)
        if self.keeps_unlisted:
            self.kept.append(self.runners[gone])
        if self.unlists_after and not self.keeps:
            self._leaving[gone] = self.unlists_after
        elif not self.keeps:
            del self.runners[gone]

    def _ready(self, tag: str, options: dict[str, Any], shift: bool) -> int:
        """Nanoseconds until a runner is there that was launched as this call wants it."""
        weights = self.manifest(tag).weights
        runner = self.runners.get(weights)
        if runner is not None and runner.alive and runner.launch == launch(options, shift, self.train_context):
            return LOADED_NS
        self.asked_to_go.discard(weights)
        self.load(tag, options, shift)
        return RELOAD_NS

    def _answer(self, tag: str, body: dict[str, Any], waited: int) -> Reply:
        prompt = self.manifest(tag).render(body["messages"][0]["content"])
        warming = body.get("options", {}).get("num_predict") == 1
        self.prompts += not warming
        words, room = prompt.split(), self._room(tag)
        if self.wrong.now("cut"):
            prompt = prompt[: len(prompt) // 2]
        elif len(words) >= room and not body.get("truncate", True):
            return as_json(ollama_answers.overflow(len(words), room), 400)
        elif len(words) >= room:
            prompt = " ".join(words[: room // 2])
        instead = self.chat.pop(0) if self.chat and not warming else {}
        if isinstance(instead, Reply):
            return instead
        if not warming and (death := self.wrong.first(DEATHS)):
            self.kill()
            return as_json({"error": DEATHS[death]}, 500)
        if not warming:
            instead |= ANSWERS.get(self.wrong.first(ANSWERS) or "", {})
        counts = {"prompt_tokens": len(prompt.split()), "loaded_ns": waited}
        found = ollama_answers.answer(body, self.answer(prompt), **counts, instead=instead)
        return found if warming else self.wrong.spoilt(found)

    def _room(self, tag: str) -> int:
        """Tokens of a slot: its runner rounds a context up to a multiple of 256."""
        context: int = self.runners[self.manifest(tag).weights].launch[0]
        return -(-context // 256) * 256


@asynccontextmanager
async def ollama_server(*tags: str) -> AsyncIterator[tuple[Ollama, ChatServer]]:
    """Run a server with these models pulled, in the event loop of the test."""
    state = Ollama()
    for tag in tags:
        state.pull(tag)
    async with chat_server(state.respond) as server:
        yield state, server


@contextmanager
def serve_ollama(double: Ollama) -> Iterator[ChatServer]:
    """Run the double on a loop of its own, because the stack is other processes and the test waits for it."""
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
