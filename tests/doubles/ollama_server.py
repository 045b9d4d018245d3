"""A loopback double of the native API of Ollama, as far as our client uses it, residency and misbehaviour included.

It follows the documented API and the server's own source: what a load, a call and an unload do to `/api/ps`, that a
call with other runner options or another `shift` replaces the runner, that an unload is only asked for. It proves that
we speak the protocol and notice what we must; what a real server does on a real GPU it cannot prove.
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.doubles.answers import by_rule, by_word
from tests.doubles.chat_server import ChatServer, Reply, Seen, as_json, chat_server
from tests.doubles.gpu import Gpu
from tests.doubles.misbehaviour import CONTENT, MODELS, PATH, TRANSPORT, Misbehaviour
from tests.doubles.ollama_faults import ANSWERS, DEEDS, DIED

MIB = 1 << 20
SECOND = 1_000_000_000
SIZE = 4_683_087_332
"""Bytes of a pulled model: about what `qwen2.5:7b` has."""
SHOWN = {
    "details": {"family": "qwen2", "parameter_size": "7.6B", "quantization_level": "Q4_K_M"},
    "model_info": {
        "general.architecture": "qwen2", "general.file_type": 15, "general.parameter_count": 7_615_616_512,
        "qwen2.attention.head_count": 28, "qwen2.attention.head_count_kv": 4, "qwen2.block_count": 28,
        "qwen2.context_length": 32_768, "qwen2.embedding_length": 3584, "tokenizer.ggml.tokens": [],
    },
    "tensors": [{"name": "token_embd.weight", "type": "Q4_K", "shape": [3584, 152_064]}],
}  # fmt: skip
"""What a server says of it, as far as a footprint follows from it."""
RUNNER = ("num_ctx", "num_batch", "num_gpu")
OVERFLOW = {
    "error": json.dumps({"error": {"code": 400, "message": "request (9 tokens) exceeds the available context size",
                                   "type": "exceed_context_size_error"}})
}  # fmt: skip
"""How servers since 0.34 refuse a prompt that does not fit: the runner's error, as a string."""


FIRST_PID = 5_000_000
"""Larger than any that Linux gives."""


def digest(content: str) -> str:
    """Of a manifest."""
    return hashlib.sha256(content.encode()).hexdigest()


@dataclass
class Runner:
    """A loaded model."""

    name: str
    digest: str
    launch: tuple[Any, ...]
    """What a call must agree with to be answered by it."""
    size: int
    size_vram: int
    context_length: int
    pid: int = 0


@dataclass
class Ollama:
    """What a server holds, and how it misbehaves; everything may be changed while it serves."""

    version: str = "0.40.2"
    pulled: dict[str, str] = field(default_factory=dict)
    """Manifest digests by full tag."""
    runners: dict[str, Runner] = field(default_factory=dict)
    """What is resident, by digest."""
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
    """Digests."""
    _leaving: dict[str, int] = field(default_factory=dict)

    def pull(self, tag: str, content: str = "v1") -> str:
        """As `ollama pull`: the tag names this manifest from now on; what is loaded stays as it is."""
        self.pulled[tag] = digest(tag + content)
        return self.pulled[tag]

    def respond(self, seen: Seen) -> Reply:
        """One request."""
        reply = self.told(seen) if seen.path == PATH else self._served(seen)
        self._show()
        return reply

    def told(self, seen: Seen) -> Reply:
        """To misbehave, or to stop it."""
        if refused := self.wrong.told(seen):
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

    def _served(self, seen: Seen) -> Reply:
        match seen.method, seen.path:
            case "GET", "/double":
                return self._document()
            case "GET", "/api/version":
                return as_json({"version": self.version})
            case "GET", "/api/tags":
                rest = {"details": {"quantization_level": "Q4_K_M"}, "size": SIZE}
                listed = [{"name": tag, "model": tag, "digest": d, **rest} for tag, d in self.pulled.items()]
                return as_json({"models": listed})
            case "POST", "/api/show" if seen.json["model"] in self.pulled:
                return as_json(self.shown)
            case "GET", "/api/ps":
                return as_json({"models": [self._process(runner) for runner in self._resident()]})
            case "POST", "/api/chat":
                return self._chat(seen.json)
        return as_json({"error": "no such route"}, 404)

    def load(self, tag: str, options: dict[str, Any] | None = None, shift: bool = True) -> Runner:
        """What any client's call does, if the model is not loaded so."""
        options = options or {"num_ctx": 4096}
        context = min(options["num_ctx"], self.train_context)
        launch = (context, shift, *(options.get(name) for name in RUNNER[1:]))
        self.loads.append(tag)
        while len(self.runners) >= self.most:
            self.runners.pop(next(iter(self.runners)))
        size = self.sizes.get(tag, 400) * MIB
        on_gpu = 0 if options.get("num_gpu") == 0 else size - self.spill
        made = Runner(tag, self.pulled[tag], launch, size, on_gpu, context, FIRST_PID + len(self.loads))
        self.runners[made.digest] = made
        return made

    def _resident(self) -> list[Runner]:
        for each in [each for each, looks in self._leaving.items() if looks == 0]:
            self.runners.pop(each, None)
            del self._leaving[each]
        self._leaving = {each: looks - 1 for each, looks in self._leaving.items()}
        return list(self.runners.values())

    def _process(self, runner: Runner) -> dict[str, Any]:
        return {
            "name": runner.name, "model": runner.name, "digest": runner.digest, "size": runner.size,
            "size_vram": runner.size_vram, "context_length": runner.context_length,
        }  # fmt: skip

    def _chat(self, body: dict[str, Any]) -> Reply:
        self.bodies.append(body)
        tag = body["model"]
        if tag not in self.pulled:
            return as_json({"error": f"model '{tag}' not found"}, 404)
        if not body["messages"] and body["keep_alive"] == 0:
            self._unload(self.pulled[tag])
            return as_json({"model": tag, "message": {"role": "assistant"}, "done": True, "done_reason": "unload"})
        if self.hangs_on_load and self.pulled[tag] not in self.runners:
            return Reply(hang=True)
        waited = self._ready(tag, body)
        if not body["messages"]:
            return as_json({"model": tag, "message": {"role": "assistant"}, "done": True, "done_reason": "load"})
        return self._answer(body["messages"][0]["content"], body, waited)

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

    def _ready(self, tag: str, body: dict[str, Any]) -> int:
        """Nanoseconds until a runner is there that was launched as this call wants it."""
        options = body["options"]
        context = min(options["num_ctx"], self.train_context)
        launch = (context, body["shift"], *(options.get(name) for name in RUNNER[1:]))
        runner = self.runners.get(self.pulled[tag])
        if runner is not None and runner.launch == launch:
            return SECOND // 50
        self.runners.pop(self.pulled[tag], None)
        self.asked_to_go.discard(self.pulled[tag])
        self.load(tag, options, body["shift"])
        return 4 * SECOND

    def _answer(self, prompt: str, body: dict[str, Any], waited: int) -> Reply:
        warming = body["options"]["num_predict"] == 1
        self.prompts += not warming
        if self.wrong.now("cut"):
            prompt = prompt[: len(prompt) // 2]
        elif len(prompt.split()) >= body["options"]["num_ctx"]:
            return as_json(OVERFLOW, 400)
        instead = self.chat.pop(0) if self.chat and not warming else {}
        if isinstance(instead, Reply):
            return instead
        found = {
            "model": body["model"], "message": {"role": "assistant", "content": self.answer(prompt)}, "done": True,
            "done_reason": "stop", "load_duration": waited, "prompt_eval_count": len(prompt.split()),
            "prompt_eval_duration": 3_000_000, "eval_count": 5, "eval_duration": 2_500_000,
        }  # fmt: skip
        if body.get("logprobs"):
            found["logprobs"] = by_word(found["message"]["content"], body["top_logprobs"])
        return as_json(found | instead) if warming else self._spoilt(found | instead, body["model"])

    def _spoilt(self, found: dict[str, Any], tag: str) -> Reply:
        """An answer to a prompt, as it goes out."""
        if self.wrong.now("out_of_memory"):
            self.runners.pop(self.pulled[tag], None)
            return as_json(DIED, 500)
        instead = ANSWERS.get(self.wrong.first(ANSWERS) or "", {})
        return self.wrong.spoilt(as_json(found | instead))


@asynccontextmanager
async def ollama_server(*tags: str) -> AsyncIterator[tuple[Ollama, ChatServer]]:
    """A server in the event loop of the test, with these models pulled."""
    state = Ollama()
    for tag in tags:
        state.pull(tag)
    async with chat_server(state.respond) as server:
        yield state, server


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
