"""Settings of a device that a guard owns, part of `Settings`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from shared.model_settings import VLLM_LOAD_S, Model


class Device(BaseModel):
    """The device that one guard owns."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    id: str = "cpu:0"
    """Its name in rows, lock and lease; of a GPU the UUID as `nvidia-smi -L` prints it."""
    residency: Literal["staged", "together", "auto"] = "staged"
    """`staged`: one model at a time; `together`: several, as far as they fit; `auto`: what the planner finds
    cheapest."""
    budget_mib: int = 160
    """Sum of declared footprints that may be resident; 160 refuses the two shipped models together."""
    memory: Literal["measured", "declared"] | None = None
    """`measured`: NVML testifies, and without it nothing is loaded; `declared`: only the declared footprints count.
    By default a GPU that is named by its UUID is measured, any other device declared."""
    reserve_mib: int = Field(default=256, ge=0)
    """What must stay free beside the models that are loaded, on a measured device."""
    free_timeout_s: float = Field(default=30.0, gt=0)
    """Longest wait for unloaded memory to be free; then what can be killed is killed, and it is waited once more."""
    load_timeout_s: float = Field(default=120.0, examples=[120])
    """Longest start of a model server; as long as it is not set, vLLM has 600 s: it took up to 215 s on a processor."""
    drain_timeout_s: float = 30.0
    """Longest wait for calls in flight before a flip aborts them."""
    max_wait_s: float = Field(default=900.0, ge=0)
    """A job that can go on only with another model than the resident ones waits so long for their drain, then the
    device flips for it (docs/decisions/0035-a-drain-has-bounds.md); 0: it waits to the end of their work."""
    max_residency_s: float = Field(default=1800.0, ge=0)
    """A residency that was open for so long gives way to such a job at once; 0: never."""
    online_patience_s: float = Field(default=10.0, ge=0)
    """A question to `/v1/chat` waits so long for a model that is not resident before it is loaded for it."""
    guard_url: str = ""
    """Where the guard of a further device listens; empty: `mathrag up` starts it. Of the first device it is the setting
    `guard_url`."""
    _vectors_mib: int = PrivateAttr(default=0)

    @property
    def models_mib(self) -> int:
        """What models may take: the budget, less what vectors have of it (`retrieval.dense.gpu_mib`)."""
        return self.budget_mib - self._vectors_mib

    def load_timeout_of(self, model: Model) -> float:
        """Longest start of the model's server, in seconds."""
        slow = model.driver == "vllm-sleep" or model.server == "vllm"
        return VLLM_LOAD_S if slow and "load_timeout_s" not in self.model_fields_set else self.load_timeout_s

    def shared(self, vectors_mib: int) -> "Device":
        """The same device with so much of its budget set aside for vectors."""
        copy = self.model_copy()
        copy._vectors_mib = vectors_mib
        return copy

    @property
    def measured(self) -> bool:
        """Whether its memory is measured."""
        return self.memory == "measured" or (self.memory is None and self.id.startswith(("GPU-", "MIG-")))
