"""What the double of Ollama keeps: manifests on its disk, and the runners that hold their weights."""

import hashlib
import json
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

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


def digest(content: str) -> str:
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
        return digest(json.dumps([self.weights, self.system, self.template, self.parameters]))

    @property
    def blob(self) -> str:
        """Return the name of the file of its weights."""
        return f"sha256-{digest(self.weights)}"

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
