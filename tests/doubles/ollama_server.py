"""A loopback double of the native API of Ollama, as far as our client uses it, residency and misbehaviour included.

It answers as Ollama 0.33.0-rc2 was recorded to (`tests/recorded/`, replayed by `test_ollama_recorded.py`): a runner is
known by the file of its weights, so a tag that was created again with another SYSTEM, TEMPLATE or PARAMETER is answered
by the runner that is there, while `/api/ps` keeps the old digest. What a server does on a real GPU it cannot prove.

`python -m tests.doubles.ollama_server` is `ollama serve` at OLLAMA_HOST, which keeps in OLLAMA_MODELS what was created.
How a file is sent and made into a model is as the API's documentation says; it was never recorded on a real server.
"""

import asyncio
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from shared.models.ollama import make_full_tag
from tests.doubles.chat_server import ChatServer, Reply, Seen, as_json, as_lines, by_rule, by_word, chat_server
from tests.doubles.gpu import Gpu
from tests.doubles.misbehaviour import CONTENT, MODELS, PATH, TRANSPORT, Misbehaviour

# What a server keeps: manifests on its disk, and the runners that hold their weights.

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
CREATED = "2026-11-22T13:14:41.643897959Z"
PLAIN = "{{ .System }}{{ .Prompt }}"
"""A template that adds nothing."""
DETAILS = {
    "parent_model": "", "format": "gguf", "family": "qwen2", "families": ["qwen2"], "parameter_size": "7.6B",
    "quantization_level": "Q4_K_M",
}  # fmt: skip
RUNNER = ("num_ctx", "num_batch", "num_gpu")
"""Options that a runner is launched with."""
UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def sha256(content: str) -> str:
    """Hash a text to a SHA-256 in hexadecimal."""
    return hashlib.sha256(content.encode()).hexdigest()


@dataclass(frozen=True)
class Manifest:
    """A model on the server's disk: what is sent to its weights, and how they are sampled, stands beside them."""

    weights: str
    system: str = ""
    template: str = PLAIN
    parameters: tuple[tuple[str, object], ...] = ()

    @property
    def digest(self) -> str:
        """Return the hash of the whole manifest, by which `/api/tags` names the model."""
        return sha256(json.dumps([self.weights, self.system, self.template, self.parameters]))

    @property
    def blob(self) -> str:
        """Return the name of the file of its weights."""
        return f"sha256-{sha256(self.weights)}"

    def render(self, prompt: str) -> str:
        """Return the text that the weights would be given."""
        system = f"{self.system}\n" if self.system else ""
        return self.template.replace("{{ .System }}", system).replace("{{ .Prompt }}", prompt)

    def describe_in_tags(self, tag: str, modified_at: str) -> dict[str, Any]:
        """Return its entry of `/api/tags`."""
        return {
            "name": tag, "model": tag, "modified_at": modified_at, "size": SIZE, "digest": self.digest,
            "details": {**DETAILS, "context_length": 2048, "embedding_length": 128}, "capabilities": ["completion"],
        }  # fmt: skip

    def describe_in_show(self, tag: str) -> dict[str, Any]:
        """Return the model's document in `/api/show`."""
        parameters = "\n".join(f"{name:<30} {json.dumps(value)}" for name, value in self.parameters)
        system = {"system": self.system} if self.system else {}
        return {
            "modelfile": f"# FROM {tag}\nFROM /models/blobs/{self.blob}\n", "parameters": parameters,
            "template": self.template, **system, "details": DETAILS, "model_info": {}, "tensors": [],
            "capabilities": ["completion"], "modified_at": CREATED,
        }  # fmt: skip


@dataclass
class Runner:
    """Loaded weights; `name` and `digest` are of the manifest that they were loaded for, whatever became of it."""

    name: str
    digest: str
    weights: str
    launch: tuple[Any, ...]
    """What a call must agree with to be answered by it."""
    size: int
    size_vram: int
    context_length: int
    pid: int = 0
    alive: bool = True
    """A dead one is listed until somebody asks it something."""
    expires_at: float = field(default=float("inf"))
    """Time of expiry by `time.monotonic`."""

    @property
    def expired(self) -> bool:
        """Whether nobody has asked it anything for its `keep_alive`."""
        return time.monotonic() >= self.expires_at

    def keep(self, keep_alive: object) -> None:
        """For so long after this call; five minutes where the call does not say."""
        self.expires_at = time.monotonic() + seconds("5m" if keep_alive is None else keep_alive)

    def describe_loaded(self) -> dict[str, Any]:
        """Return its entry of `/api/ps`."""
        left = min(self.expires_at - time.monotonic(), 1e9)
        return {
            "name": self.name, "model": self.name, "size": self.size, "digest": self.digest, "details": DETAILS,
            "expires_at": stamp(left), "size_vram": self.size_vram, "context_length": self.context_length,
        }  # fmt: skip


def launch(options: dict[str, Any], shift: bool, train_context: int) -> tuple[Any, ...]:
    """What a runner is started with; its context comes first."""
    context = min(options.get("num_ctx", 4096), train_context)
    return (context, shift, *(options.get(name) for name in RUNNER[1:]))


def seconds(keep_alive: object) -> float:
    """Convert a number or a text such as `10m` into seconds; a negative value means for ever."""
    if isinstance(keep_alive, int | float):
        found = float(keep_alive)
    else:
        number, unit = re.fullmatch(r"(-?[\d.]+)([a-z]*)", str(keep_alive)).groups()  # type: ignore[union-attr]
        found = float(number) * UNITS[unit or "s"]
    return float("inf") if found < 0 else found


def stamp(ahead_s: float = 0.0) -> str:
    """Write a time as the server does."""
    return (datetime.now(UTC) + timedelta(seconds=ahead_s)).isoformat().replace("+00:00", "Z")


# How it says an answer: whole or as a stream, cut where the real server cuts it.

MILLISECOND = 1_000_000
REPEATS = 31
"""So often the same token in a row ends an answer, with no word of why."""


def pieces(text: str, most: int) -> tuple[list[str], str | None]:
    """Return an answer's tokens, which are its words here, and why it ended; None if it repeated itself."""
    found: list[str] = []
    repeats = 0
    for piece in re.findall(r" ?[^ ]+| +", text):
        if most >= 0 and len(found) >= most:
            return found, "length"
        repeats = repeats + 1 if found and found[-1].strip() == piece.strip() else 1
        if repeats > REPEATS:
            return found, None
        found.append(piece)
    return found, "stop"


def answer(body: dict[str, Any], text: str, *, prompt_tokens: int, loaded_ns: int, instead: dict[str, Any]) -> Reply:
    """Make the reply to a call; the fields of `instead` replace its own."""
    most = (body.get("options") or {}).get("num_predict", -1)
    said, ended = pieces(instead.get("message", {}).get("content", text), most)
    last: dict[str, Any] = {"done": False}
    if ended is not None:
        last = {
            "done": True, "done_reason": ended, "total_duration": loaded_ns + 9 * MILLISECOND,
            "load_duration": loaded_ns, "prompt_eval_count": prompt_tokens, "prompt_eval_duration": 3 * MILLISECOND,
            "eval_count": len(said), "eval_duration": 2 * MILLISECOND + MILLISECOND // 2,
        }  # fmt: skip
    last |= {key: value for key, value in instead.items() if key != "message"}
    logprobs = by_word("".join(said), body["top_logprobs"]) if body.get("logprobs") else []
    if body.get("stream", True):
        return as_lines(_stream(body["model"], said, last, logprobs))
    return as_json(_part(body["model"], "".join(said)) | last | ({"logprobs": logprobs} if logprobs else {}))


def overflow(tokens: int, room: int) -> dict[str, str]:
    """How a prompt that does not fit is refused: the runner's error, as a string."""
    said = f"request ({tokens} tokens) exceeds the available context size ({room} tokens), try increasing it"
    inner = {
        "code": 400,
        "message": said,
        "type": "exceed_context_size_error",
        "n_prompt_tokens": tokens,
        "n_ctx": room,
    }
    return {"error": json.dumps({"error": inner}, separators=(",", ":"))}


def _stream(
    model: str, said: list[str], last: dict[str, Any], logprobs: list[dict[str, Any]]
) -> Iterator[dict[str, Any]]:
    for number, piece in enumerate(said):
        part = _part(model, piece) | {"done": False}
        yield part | ({"logprobs": logprobs[number : number + 1]} if logprobs else {})
    if last["done"]:
        yield _part(model, "") | last


def _part(model: str, content: str) -> dict[str, Any]:
    return {"model": model, "created_at": stamp(), "message": {"role": "assistant", "content": content}}


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
            return as_json(overflow(len(words), room), 400)
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
        allowed = body.get("format", {}).get("enum", ())
        text = json.dumps(allowed[-1]) if allowed else self.answer(prompt)
        found = answer(body, text, **counts, instead=instead)
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


# What it can be told to do wrong with its models and its answers, word by word.

STRANGER = "llama3:8b"
"""What somebody else loads."""
DEATHS: Mapping[str, str] = {
    "out_of_memory": "llama runner process has terminated: CUDA error: out of memory",
    "die": "an error was encountered while running the model: unexpected EOF",
    "end": "llama-server process has terminated: signal: killed",
}
"""What it says when a runner dies under a call: before 0.30, always, and since."""


def well(server: Ollama) -> None:
    """As before; what it kept is gone, and what it made of models that are loaded stays."""
    server.keeps = server.keeps_unlisted = server.hangs_on_load = False
    server.spill, server.train_context = 0, 1 << 20
    server.pulled.update(server.pulled_before)
    server.pulled_before.clear()
    server.kept.clear()
    strangers = [each for each, runner in server.runners.items() if runner.name == STRANGER]
    server.pulled.pop(STRANGER, None)
    for gone in (*server.asked_to_go, *strangers):
        server.runners.pop(gone, None)
    server.asked_to_go.clear()


def digest(server: Ollama) -> None:
    """Every tag was pulled again; what is loaded stays."""
    server.pulled_before = dict(server.pulled)
    for tag in server.pulled_before:
        server.pull(tag, "v2")


def create(server: Ollama) -> None:
    """Every tag was created again with another SYSTEM; the weights stay, and so does what is loaded."""
    server.pulled_before = dict(server.pulled)
    for tag in server.pulled_before:
        server.create(tag, system="You answer in one word.")


def remove(server: Ollama) -> None:
    """Remove every tag, as `ollama rm` does; loaded models stay."""
    server.pulled_before = dict(server.pulled)
    server.pulled.clear()


def kill(server: Ollama) -> None:
    """Every runner is dead, and nobody has noticed."""
    server.kill()


def spill(server: Ollama) -> None:
    """Part of every model is in main memory."""
    server.spill = 100 * MIB
    for runner in server.runners.values():
        runner.size_vram = runner.size - server.spill


def shrink(server: Ollama) -> None:
    """Every context is half of what it was, and stays so."""
    for runner in server.runners.values():
        runner.context_length //= 2
    server.train_context = min((runner.context_length for runner in server.runners.values()), default=32)


def keep(server: Ollama) -> None:
    """An unload is answered, and nothing happens."""
    server.keeps = True


def keep_unlisted(server: Ollama) -> None:
    """It leaves the list, and its memory stays taken."""
    server.keeps_unlisted = True


def stranger(server: Ollama) -> None:
    """Somebody else asks it something."""
    server.pull(STRANGER)
    server.load(STRANGER)


def hang_on_load(server: Ollama) -> None:
    """No load ends."""
    server.hangs_on_load = True


DEEDS: Mapping[str, Callable[[Ollama], None]] = {
    deed.__name__: deed
    for deed in (well, digest, create, remove, kill, spill, shrink, keep, keep_unlisted, stranger, hang_on_load)
}
ANSWERS: Mapping[str, dict[str, Any]] = {
    "loop": {"message": {"role": "assistant", "content": "so " * 40}},
    "length": {"done_reason": "length"},
    "empty": {"message": {"role": "assistant", "content": ""}},
    "unreadable": {"message": {"role": "assistant", "content": "It depends."}},
    "out_of_range": {"message": {"role": "assistant", "content": "[[9]]"}},
}
"""What stands in an answer instead."""


# The double as a program.

BLOBS = "/api/blobs/sha256:"


class Program:
    """A server, and the folder with the requests that created its models."""

    def __init__(self, folder: Path) -> None:
        self.double = Ollama(most=1, answer=answer_the_user)
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        for each in folder.iterdir():
            self._create(json.loads(each.read_text()))

    def respond(self, seen: Seen) -> Reply:
        """As the double, and make models."""
        if seen.path.startswith(BLOBS):
            same = seen.path == BLOBS + hashlib.sha256(seen.body).hexdigest()
            return Reply(status=201) if same else as_json({"error": "digest mismatch"}, 400)
        if seen.path in ("/api/create", "/api/delete"):
            file = self._folder / f"{make_full_tag(seen.json['model'])}.json"
            file.unlink(missing_ok=True)
            if seen.path == "/api/create":
                file.write_bytes(seen.body)
                self._create(seen.json)
                return as_json({"status": "success"})
        return self.double.respond(seen)

    def _create(self, body: dict[str, Any]) -> None:
        (weights,) = body["files"].values()
        parts = (body["system"], body["template"], tuple(body["parameters"].items()))
        self.double.put(make_full_tag(body["model"]), Manifest(weights, *parts))


def answer_the_user(prompt: str) -> str:
    """By the rule, from the last turn of a prompt in ChatML."""
    return by_rule(prompt.rpartition("<|im_start|>user\n")[2].partition("<|im_end|>")[0])


async def main() -> None:
    """Serve until the process is ended."""
    port = int(os.environ["OLLAMA_HOST"].rpartition(":")[2])
    async with chat_server(Program(Path(os.environ["OLLAMA_MODELS"])).respond, port):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
