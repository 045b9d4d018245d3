"""Estimate the memory of a load: learned from loads, else declared, else assumed from the model's metadata. Pure.

    assumed  = weights + KV cache + compute buffer + context
    KV cache = 2 * layers * kv_heads * head_dim * bytes per value * context * parallel
    compute  = 4 * batch * (vocabulary + embedding)

The compute buffer holds the logits and the last hidden states of one batch as 32-bit floats: what llama.cpp reserves
with flash attention, and the first term of Ollama's `GraphSize` for Qwen2 (fs/ggml/ggml.go). A batch is not longer than
the slots' contexts together. All weights are counted, though llama.cpp leaves input embeddings in main memory, so it is
an upper bound. The context is what a CUDA process takes before it holds anything; a process on a CPU has none.

Fewer slots save their share of the assumed KV cache. On a CPU a process's own memory dwarfs small models, so nothing is
learned there: the declared memory is compared with the budget.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from shared.contracts.architecture import MIB, Architecture
from shared.lease.estimates import MemoryEstimate, Source

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
"""A load is far from what was learned if it differs by more than this share of the maximum."""
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
