"""The memory of models: estimates from their architecture, measurements, and the hardware."""

import math
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from shared.shapes import MIB, Architecture

# Estimates that a plan is made from, each with its source. Pure.
#
# A source is `declared` by the operator, `measured` in the last calls and loads, `learned` from what loads took, or
# `assumed` from the model's metadata and typical hardware.

Source = Literal["declared", "measured", "learned", "assumed"]


class Estimate(msgspec.Struct, frozen=True, kw_only=True, rename={"source": "basis", "detail": "source"}):
    """Estimated seconds, with the source of the estimate."""  # the API calls `source` basis, and `detail` source

    value: float
    """Estimated seconds."""
    source: Source
    """Source of the estimate."""
    detail: str
    """How the value was obtained, such as "its last loads here" or "4466 MiB at 500 MiB/s"."""


class MemoryEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """Memory of a load as a function of its slots."""

    fixed_mib: float
    per_slot_mib: float
    source: Source | None
    """None if nothing is known; the memory then counts as 0."""

    def at(self, parallel: int) -> int:
        """Return the memory with `parallel` slots, in whole MiB rounded up."""
        return math.ceil(round(self.fixed_mib + self.per_slot_mib * parallel, 6))

    @property
    def basis(self) -> str:
        """The source in the words of the API and of the guard's reports."""
        return {"assumed": "estimated", None: "unknown"}.get(self.source) or str(self.source)


# Estimate the memory of a load: learned from loads, else declared, else assumed from the model's metadata. Pure.
#
# - `assumed = weights + KV cache + compute buffer + context`
# - `KV cache = 2 * layers * kv_heads * head_dim * bytes per value * context * parallel`
# - `compute buffer = 4 * batch * (vocabulary + embedding)`
#
# The compute buffer holds the logits and the last hidden states of one batch as 32-bit floats: what llama.cpp reserves
# with flash attention, and the first term of Ollama's `GraphSize` for Qwen2 (fs/ggml/ggml.go). A batch is not longer
# than the slots' contexts together. All weights are counted, though llama.cpp leaves input embeddings in main memory,
# so it is an upper bound. The context is the memory of an empty CUDA process; a process on a CPU has
# none.
#
# Fewer slots save their share of the assumed KV cache. On a CPU a process's own memory dwarfs small models, so nothing
# is learned there: the declared memory is compared with the budget.

F16_BYTES = 2.0
Q8_BYTES = 34 / 32
"""Bytes per value in llama.cpp's `q8_0`: blocks of 32 values with a scale of two bytes."""
BATCH = 512
"""Tokens computed at once: the default of llama.cpp (`n_ubatch`) and of Ollama."""
CUDA_CONTEXT_MIB = 358.0
"""An estimate (0.35 GiB); it differs by driver and GPU, which is one reason why loads are measured."""
ASSUMED_MARGIN = 0.05
"""Share added to assumed memory, for work spaces of libraries and for allocation in whole pages."""
LEARNED_MARGIN = 0.02
"""Share added to the learned maximum, for differences between equal loads."""
FAR_RATIO = 0.25
"""A load is far from the learned value if it differs by more than this share of the maximum."""
FAR_MIB = 64.0
"""A load that differs by less is never far."""


class AssumedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Assumed memory by purpose, in MiB."""

    weights_mib: float
    kv_mib: float
    compute_mib: float
    context_mib: float

    @property
    def total(self) -> int:
        """Return the sum, rounded up to whole MiB."""
        return math.ceil(self.weights_mib + self.kv_mib + self.compute_mib + self.context_mib)


class LearnedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """The range of what loads took, in MiB."""

    least_mib: float
    most_mib: float
    loads: int = 1

    def include(self, mib: float) -> "LearnedMemory":
        """Return the range that includes one more load."""
        return LearnedMemory(least_mib=min(self.least_mib, mib), most_mib=max(self.most_mib, mib), loads=self.loads + 1)

    def is_far(self, mib: float) -> bool:
        """Tell whether a load is too far from the range to belong to it."""
        below, above = self.least_mib - mib, mib - self.most_mib
        return max(below, above) > max(FAR_MIB, FAR_RATIO * self.most_mib)


def assume_memory(
    architecture: Architecture, *, context: int, parallel: int, kv_bytes: float = F16_BYTES, on_gpu: bool = True
) -> AssumedMemory:
    """Compute the memory of `parallel` slots of `context` tokens each; `kv_bytes` is that of one value in the cache."""
    tokens = context * parallel
    values = 2 * architecture.layers * architecture.kv_heads * architecture.head_dim * tokens
    activations = min(BATCH, tokens) * (architecture.vocabulary + architecture.embedding)
    return AssumedMemory(
        weights_mib=architecture.weights_mib,
        kv_mib=values * kv_bytes / MIB,
        compute_mib=4 * activations / MIB,
        context_mib=CUDA_CONTEXT_MIB if on_gpu else 0.0,
    )


def estimate_memory(
    *,
    declared_mib: int,
    architecture: Architecture | None,
    context: int,
    parallel: int,
    on_gpu: bool,
    learned: Mapping[int, LearnedMemory] | None = None,
    kv_bytes: float = F16_BYTES,
) -> MemoryEstimate:
    """Estimate from the best source; `parallel` are the configured slots, `learned` is by slots on this device."""
    assumed = None
    if architecture:
        assumed = assume_memory(architecture, context=context, parallel=parallel, kv_bytes=kv_bytes, on_gpu=on_gpu)
    per_slot = assumed.kv_mib / parallel if assumed else 0.0
    if learned and on_gpu:
        slots = parallel if parallel in learned else max(learned)
        return _estimate_through(learned[slots].most_mib * (1 + LEARNED_MARGIN), slots, per_slot, "learned")
    if declared_mib > 0:
        return _estimate_through(declared_mib, parallel, per_slot, "declared")
    if assumed:
        factor = 1 + ASSUMED_MARGIN
        return _estimate_through(assumed.total * factor, parallel, per_slot * factor, "assumed")
    return MemoryEstimate(fixed_mib=0, per_slot_mib=0, source=None)


def read_context(options: Mapping[str, Any]) -> int:
    """Read the tokens per slot from a model row's options; 0 if they do not tell."""
    return int(options.get("context") or options.get("num_ctx") or 0)


def _estimate_through(mib: float, slots: int, per_slot: float, source: Source) -> MemoryEstimate:
    """Return the line by slots through a known value, of which the slots take at most all."""
    if per_slot * slots > mib:
        return MemoryEstimate(fixed_mib=mib, per_slot_mib=0, source=source)
    return MemoryEstimate(fixed_mib=mib - per_slot * slots, per_slot_mib=per_slot, source=source)


# Estimate the seconds of loads and calls that were not measured yet, from typical hardware. Pure.
#
# A load reads the weights from disk. A call decodes its longest answer, and every token of it reads the weights once
# for all slots together. Prompts are not counted, so the time per token is a lower bound, and the number of tokens an
# upper bound. Measurements replace these estimates.


class Hardware(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Assumed speeds of the hardware."""

    disk_mib_s: float = 500.0
    """Speed of reading from disk: that of a SATA SSD; NVMe is several times as fast."""
    gpu_mib_s: float = 343_000.0
    """Speed of reading from GPU memory: the 360 GB/s of an RTX 3060 with 12 GB, by its data sheet."""
    cpu_mib_s: float = 20_000.0
    """Speed of reading from main memory: one channel of DDR4-2666, by the standard 21.3 GB/s."""
    verify_s: float = 0.4
    """Seconds for the three readings, 200 ms apart, which verify that memory is free after an unload."""

    def load(self, weights_mib: float) -> Estimate:
        """Estimate the seconds of a load of `weights_mib`."""
        detail = f"{weights_mib:.0f} MiB of weights at {self.disk_mib_s:.0f} MiB/s, and {self.verify_s:g} s to verify"
        return Estimate(value=weights_mib / self.disk_mib_s + self.verify_s, source="assumed", detail=detail)

    def call(self, weights_mib: float, *, tokens: int, parallel: int, on_gpu: bool) -> Estimate:
        """Estimate the seconds of a call that answers with `tokens` tokens, while all slots are busy."""
        speed = self.gpu_mib_s if on_gpu else self.cpu_mib_s
        detail = (
            f"{tokens} tokens, each reading {weights_mib:.0f} MiB at {speed:.0f} MiB/s, for {parallel} slots at once"
        )
        return Estimate(value=tokens * weights_mib / speed / parallel, source="assumed", detail=detail)
