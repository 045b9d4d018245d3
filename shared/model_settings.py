"""Settings of a model that jobs may ask for, part of `Settings`."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from shared.retrieval_settings import Url


class TokenPrice(BaseModel):
    """What a provider charges for a model, in US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    prompt: float = Field(ge=0, allow_inf_nan=False)
    """For what the model reads."""
    completion: float = Field(ge=0, allow_inf_nan=False)
    """For what it writes."""

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """What so many tokens cost, in US dollars."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1_000_000


VLLM_LOAD_S = 600.0


class Model(BaseModel):
    """A model that jobs may ask for by name."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    driver: Literal["process", "vllm-sleep", "ollama", "remote", "scripted"]
    """`process`: a program of this host, by default llama.cpp (docs/model-servers.md); `vllm-sleep`: a vLLM that stays
    up (docs/model-servers.md#sleep-mode); `ollama`: a model of an Ollama server (docs/ollama.md); `remote`: an
    OpenAI-compatible or TGI server; `scripted`: for tests and benchmarks."""
    server: Literal["embedded", "llama.cpp", "tgi", "vllm"] = "embedded"
    """`process`: the program that serves the model; `embedded`: llama.cpp, as it comes with this package."""
    command: tuple[str, ...] = ()
    """`process`, `vllm-sleep`: the program and further arguments (docs/model-servers.md); by default the program by its
    usual name."""
    path: Path | None = None
    """`process`, `vllm-sleep`: the GGUF file; for TGI and vLLM a folder of config and safetensors."""
    hub: str | None = None
    """TGI and vLLM: name on the Hugging Face hub, where there is no `path`."""
    revision: str | None = Field(default=None, pattern="^[0-9a-f]{40}$")
    """Commit of the hub's repository; without it the model is not pinned, and replies are reused inside a job only."""
    url: Url | None = None
    """`remote`: base URL of an OpenAI-compatible or TGI server; `ollama`: of the server, by default
    `http://127.0.0.1:11434`."""
    tag: str | None = None
    """`ollama`: the model as it was pulled; by default the name under `models`."""
    api_key_env: str | None = None
    """`remote`: name of the environment variable that holds the key; the key itself is never stored."""
    context: int = Field(default=1024, gt=0)
    """Tokens per slot."""
    parallel: int = Field(default=8, gt=0)
    """Calls that the server answers at once; 1 with `deterministic` on llama.cpp."""
    threads: int = Field(default=1, gt=0)
    """`process`: threads of the server; one is fastest for very small models."""
    footprint_mib: int = Field(default=0, ge=0)
    """Declared memory, held against the device's `budget_mib`; 0: estimated from the model's metadata, where it has any
    (docs/planning.md)."""
    asleep_mib: int = Field(default=0, ge=0)
    """`vllm-sleep`: memory of the host that its weights take while it sleeps; where that is not free it is stopped."""
    call_timeout_s: float = Field(default=120.0, gt=0)
    """Longest answer to one prompt; what takes longer is broken off and tried again."""
    deterministic: bool = False
    """Whether a prompt gets the same reply whatever runs beside it, also after a kill
    (docs/operations.md#the-same-answer). llama.cpp then has one slot and no prompt cache, vLLM batch-invariant kernels;
    other servers cannot promise it and are refused."""
    device: str | None = None
    """Id of the device that it runs on; by default judge and generator are kept apart where there are several devices
    (docs/scaling.md#two-gpus)."""
    price: TokenPrice | None = None
    """US dollars per million tokens, for the cost in reports (docs/api.md#reports); it changes no reply and no hash.
    Without it the cost of the model's calls is unknown."""

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.server != "embedded" and self.driver != "process":
            raise ValueError(f"`server` belongs to driver `process`, not `{self.driver}`; take it away")
        if self.command and self.driver != "vllm-sleep" and self.server == "embedded":
            raise ValueError("`command` needs a `server` that it starts: llama.cpp, tgi or vllm")
        if self.hub is not None and self.driver != "vllm-sleep" and self.server not in ("tgi", "vllm"):
            raise ValueError("`hub` is for TGI and vLLM; give the file as `path`")
        if self.hub is not None and self.path is not None:
            raise ValueError("`hub` and `path` name two models; take one away")
        if self.revision is not None and self.hub is None:
            raise ValueError("`revision` is a commit of `hub`; files in `path` are known by their bytes")
        return self

    @model_validator(mode="after")
    def _repeatable(self) -> Self:
        if not self.deterministic:
            return self
        kind = self.server if self.driver == "process" else self.driver
        if kind in ("tgi", "ollama", "remote"):
            said = f"`deterministic` cannot be promised for {kind}: its replies depend on what else it computes"
            raise ValueError(f"{said}; take it away, or serve the model by llama.cpp or vLLM")
        if kind in ("embedded", "llama.cpp"):
            if "parallel" in self.model_fields_set and self.parallel > 1:
                raise ValueError(f"`deterministic` needs one slot on llama.cpp; take `parallel: {self.parallel}` away")
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
"""One model for each way to serve one, as the example file shows them."""
