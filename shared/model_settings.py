"""Settings of the models that jobs may name, part of `Settings`."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shared.retrieval_settings import Url


class TokenPrice(BaseModel):
    """Price of a model at a provider, in US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    prompt: float = Field(ge=0, allow_inf_nan=False)
    """Price of the tokens that the model reads."""
    completion: float = Field(ge=0, allow_inf_nan=False)
    """Price of the tokens that the model generates."""

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """Return the cost of this many tokens, in US dollars."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1_000_000


VLLM_LOAD_S = 600.0


class Model(BaseModel):
    """A model that jobs may name."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    driver: Literal["process", "vllm-sleep", "ollama", "remote", "plugin", "scripted"]
    """How the model is served. `process`: by a program on this host, by default llama.cpp
    (docs/how-to/model-servers.md); `vllm-sleep`: by a vLLM that sleeps between residencies
    (docs/how-to/model-servers.md#sleep-mode); `ollama`: by an Ollama server (docs/how-to/ollama.md); `remote`: by an
    OpenAI-compatible or TGI server; `plugin`: by a plug-in (docs/how-to/plugins.md#kinds); `scripted`: by a script, for
    tests and benchmarks."""
    plugin: str = ""
    """`plugin`: name of the driver."""
    options: dict[str, Any] = {}
    """`plugin`: further options of the driver."""
    server: Literal["embedded", "llama.cpp", "tgi", "vllm"] = "embedded"
    """`process`: the program that serves the model; `embedded`: the llama.cpp in this package."""
    command: tuple[str, ...] = ()
    """`process`, `vllm-sleep`: the program and further arguments (docs/how-to/model-servers.md); by default the
    program's usual name."""
    path: Path | None = None
    """`process`, `vllm-sleep`: path of the GGUF file; for TGI and vLLM, of a folder with config and safetensors."""
    hub: str | None = None
    """TGI and vLLM: name on the Hugging Face hub, instead of `path`."""
    revision: str | None = Field(default=None, pattern="^[0-9a-f]{40}$")
    """Commit of the hub's repository; without it the model is not pinned, and replies are only reused within a job."""
    url: Url | None = None
    """`remote`: base URL of an OpenAI-compatible or TGI server; `ollama`: of the server, by default
    `http://127.0.0.1:11434`."""
    tag: str | None = None
    """`ollama`: tag of the model; by default the name under `models`."""
    api_key_env: str | None = None
    """`remote`: name of the environment variable with the API key; the key itself is never stored."""
    context: int = Field(default=1024, gt=0)
    """Context of each slot, in tokens."""
    parallel: int = Field(default=8, gt=0)
    """Number of calls that the server processes at once; 1 with `deterministic` on llama.cpp."""
    threads: int = Field(default=1, gt=0)
    """`process`: number of threads of the server; 1 is fastest for very small models."""
    footprint_mib: int = Field(default=0, ge=0)
    """Memory that the model takes of the device's `budget_mib`, in MiB; 0: estimated from the model's metadata, if it
    has any (docs/how-to/planning.md)."""
    asleep_mib: int = Field(default=0, ge=0)
    """`vllm-sleep`: host memory of the weights while the server sleeps, in MiB; if that is not free, the server is
    stopped instead."""
    call_timeout_s: float = Field(default=120.0, gt=0)
    """Maximum time of one answer, in seconds; a longer one is aborted and tried again."""
    deterministic: bool = False
    """Whether equal prompts must get equal replies, whatever runs at the same time, and also after a kill
    (docs/how-to/operations.md#the-same-answer). llama.cpp then has one slot and no prompt cache, and vLLM uses
    batch-invariant kernels; other servers cannot guarantee it, and are refused."""
    device: str | None = None
    """Id of the device for the model; by default, judge and generator get different devices if there are several
    (docs/how-to/scaling.md#two-gpus)."""
    price: TokenPrice | None = None
    """US dollars per million tokens, for the cost in reports (docs/how-to/api.md#reports); it changes no reply and no
    hash. Without it, the cost of the model's calls is unknown."""

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if (self.driver == "plugin") != bool(self.plugin):
            raise ValueError("`plugin` and `driver: plugin` belong together: set both or neither")
        if self.server != "embedded" and self.driver != "process":
            raise ValueError(f"`server` belongs to driver `process`, not `{self.driver}`: remove it")
        if self.command and self.driver != "vllm-sleep" and self.server == "embedded":
            raise ValueError("`command` needs the `server` that it starts: set llama.cpp, tgi or vllm")
        if self.hub is not None and self.driver != "vllm-sleep" and self.server not in ("tgi", "vllm"):
            raise ValueError("`hub` is only for TGI and vLLM: set `path` to the file")
        if self.hub is not None and self.path is not None:
            raise ValueError("`hub` and `path` both name a model: remove one of them")
        if self.revision is not None and self.hub is None:
            raise ValueError("`revision` is a commit of `hub`, which is not set: set `hub`, or remove `revision`")
        return self

    @model_validator(mode="after")
    def _check_determinism(self) -> Self:
        if not self.deterministic:
            return self
        kind = self.server if self.driver == "process" else self.driver
        if kind in ("tgi", "ollama", "remote"):
            problem = (
                f"`deterministic` cannot be guaranteed by {kind}: its replies depend on other calls at the same time"
            )
            raise ValueError(f"{problem}; remove it, or serve the model with llama.cpp or vLLM")
        if kind in ("embedded", "llama.cpp"):
            if "parallel" in self.model_fields_set and self.parallel > 1:
                raise ValueError(f"`deterministic` needs one slot on llama.cpp: remove `parallel: {self.parallel}`")
            self.parallel = 1
        return self


EXAMPLE_MODELS: dict[str, Any] = {
    "qwen": {
        "driver": "process", "path": "/srv/models/qwen2.5-7b-q4_k_m.gguf", "context": 4096, "parallel": 4,
        "deterministic": False, "threads": 8, "footprint_mib": 6000, "device": "GPU-51d0",
        "price": {"prompt": 0.15, "completion": 0.60},
    },
    "big-qwen": {
        "driver": "process", "server": "vllm", "command": ["vllm", "serve", "--gpu-memory-utilization", "0.75"],
        "hub": "Qwen/Qwen2.5-7B-Instruct", "revision": "a09a35458c702b33eeacc393d103063234e8bc28", "context": 4096,
        "footprint_mib": 9000, "call_timeout_s": 300,
    },
    "small-qwen": {"driver": "ollama", "tag": "qwen2.5:7b-instruct-q4_K_M", "parallel": 4, "footprint_mib": 6500},
    "big": {"driver": "remote", "url": "https://models.example.org/v1", "api_key_env": "BIG_KEY", "parallel": 16},
}  # fmt: skip
"""An example of each way to serve a model, for the example file."""
