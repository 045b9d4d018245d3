"""Settings of the devices that guards own, part of `Settings`."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from shared.model_settings import VLLM_LOAD_S, Model


class Device(BaseModel):
    """A device that one guard owns."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    id: str = "cpu:0"
    """Name of the device in rows, locks and leases; for a GPU, the UUID that `nvidia-smi -L` prints."""
    residency: Literal["staged", "together", "auto"] = "staged"
    """`staged`: one model at a time; `together`: as many as fit; `auto`: what the planner estimates to be cheapest."""
    budget_mib: int = 160
    """Memory of the device that loaded models may take together, in MiB. 160 is less than the two shipped models
    need."""
    memory: Literal["measured", "declared"] | None = None
    """`measured`: NVML measures the memory, and no model is loaded without it; `declared`: only declared footprints
    count. By default, a GPU that is named by its UUID is measured, and any other device is declared."""
    reserve_mib: int = Field(default=256, ge=0)
    """Memory that must stay free beside the loaded models, in MiB, on a measured device."""
    free_timeout_s: float = Field(default=30.0, gt=0)
    """Maximum wait for unloaded memory to become free, in seconds. After it the guard kills what it may, and waits once
    more."""
    load_timeout_s: float = Field(default=120.0, examples=[120])
    """Maximum time for a model server to start, in seconds. Unless it is set, vLLM has 600 s: it took up to 215 s on a
    CPU."""
    drain_timeout_s: float = 30.0
    """Maximum wait for running calls before a flip aborts them, in seconds."""
    max_wait_s: float = Field(default=900.0, ge=0)
    """How long a job that needs another model waits for the resident models to finish their work, in seconds; then the
    device flips for it (docs/explanation/decisions/10-flips-are-planned-and-bounded.md). 0: until they have
    finished."""
    max_residency_s: float = Field(default=1800.0, ge=0)
    """Age of a residency, in seconds, from which it makes way at once for such a job; 0: never."""
    online_patience_s: float = Field(default=10.0, ge=0)
    """How long a question to `/v1/chat` waits for a model that is not resident, in seconds; then the device loads the
    model for it."""
    guard_url: str = ""
    """Address of the guard of a further device; empty: `mathrag up` starts one. For the first device, set `guard_url`
    instead."""
    _vectors_mib: int = PrivateAttr(default=0)

    @property
    def models_mib(self) -> int:
        """Return the budget of models in MiB: that of the device without the share of vectors
        (`retrieval.dense.gpu_mib`)."""
        return self.budget_mib - self._vectors_mib

    def load_timeout_of(self, model: Model) -> float:
        """Return the maximum time for the model's server to start, in seconds."""
        slow = model.driver == "vllm-sleep" or model.server == "vllm"
        return VLLM_LOAD_S if slow and "load_timeout_s" not in self.model_fields_set else self.load_timeout_s

    def with_reserved(self, vectors_mib: int) -> "Device":
        """Return a copy of the device with this part of its budget reserved for vectors."""
        copy = self.model_copy()
        copy._vectors_mib = vectors_mib
        return copy

    @property
    def measured(self) -> bool:
        """Tell whether the device's memory is measured."""
        return self.memory == "measured" or (self.memory is None and self.id.startswith(("GPU-", "MIG-")))
