"""How much memory a load takes: learned from loads, else declared, else assumed from the model's metadata. Pure.

    assumed  = weights + KV cache + compute buffer + context
    KV cache = 2 * layers * kv_heads * head_dim * bytes per value * context * parallel
    compute  = 4 * batch * (vocabulary + embedding)

The compute buffer holds the logits and the last hidden states of one batch as 32-bit floats: what llama.cpp reserves
with flash attention, and the first term of Ollama's `GraphSize` for Qwen2 (fs/ggml/ggml.go). A batch is not longer than
the slots' contexts together. All weights are counted, though llama.cpp leaves input embeddings in main memory: an upper
end. The context is what a CUDA process takes before it holds anything; a process on a CPU has none.

Fewer slots save their share of the assumed KV cache. On a CPU a process's own memory drowns small models, so there
nothing is learned: what is declared is held against the budget.
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from shared.contracts.architecture import MIB, Architecture
from shared.lease.estimates import MemoryEstimate, Source

F16_BYTES = 2.0
Q8_BYTES = 34 / 32
"""Of a value in llama.cpp's `q8_0`: blocks of 32 bytes with a scale of two."""
BATCH = 512
"""Tokens computed at once: the default of llama.cpp (`n_ubatch`) and of Ollama."""
CUDA_CONTEXT_MIB = 358.0
"""0.35 GiB, an estimate; it differs by driver and GPU, which is one reason why loads are measured."""
ASSUMED_MARGIN = 0.05
"""Of what is assumed: work spaces of libraries, and pages that are given out whole."""
LEARNED_MARGIN = 0.02
"""Of the most that was learned: what loads of the same differ by."""
FAR = 0.25
"""A load that took more or less than was learned, by more than this part of it, is far from it."""
FAR_MIB = 64.0
"""Nothing nearer is."""


class AssumedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Memory by what it is for, in MiB."""

    weights_mib: float
    kv_mib: float
    compute_mib: float
    context_mib: float

    @property
    def total(self) -> int:
        """All of it, in whole MiB rounded up: what is held against a budget."""
        return math.ceil(self.weights_mib + self.kv_mib + self.compute_mib + self.context_mib)


class LearnedMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What loads took, in MiB."""

    least_mib: float
    most_mib: float
    loads: int = 1

    def widened(self, mib: float) -> "LearnedMemory":
        """With one more load."""
        return LearnedMemory(least_mib=min(self.least_mib, mib), most_mib=max(self.most_mib, mib), loads=self.loads + 1)

    def far(self, mib: float) -> bool:
        """Whether a load took something else altogether."""
        below, above = self.least_mib - mib, mib - self.most_mib
        return max(below, above) > max(FAR_MIB, FAR * self.most_mib)


def assume_memory(
    architecture: Architecture, *, context: int, parallel: int, kv_bytes: float = F16_BYTES, on_gpu: bool = True
) -> AssumedMemory:
    """The memory of `parallel` slots of `context` tokens each; `kv_bytes`: of one value in the KV cache."""
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
    """From the best that is known; `parallel`: slots as configured, `learned`: by slots, of the model on its device."""
    assumed = None
    if architecture:
        assumed = assume_memory(architecture, context=context, parallel=parallel, kv_bytes=kv_bytes, on_gpu=on_gpu)
    per_slot = assumed.kv_mib / parallel if assumed else 0.0
    if learned and on_gpu:
        slots = parallel if parallel in learned else max(learned)
        return _through(learned[slots].most_mib * (1 + LEARNED_MARGIN), slots, per_slot, "learned")
    if declared_mib > 0:
        return _through(declared_mib, parallel, per_slot, "declared")
    if assumed:
        factor = 1 + ASSUMED_MARGIN
        return _through(assumed.total * factor, parallel, per_slot * factor, "assumed")
    return MemoryEstimate(fixed_mib=0, per_slot_mib=0, source=None)


def context_of(options: Mapping[str, Any]) -> int:
    """Tokens per slot, as a model row's options call it; 0: they do not say."""
    return int(options.get("context") or options.get("num_ctx") or 0)


def _through(mib: float, slots: int, per_slot: float, source: Source) -> MemoryEstimate:
    """A line through what is known; slots cannot take more than all of it."""
    if per_slot * slots > mib:
        return MemoryEstimate(fixed_mib=mib, per_slot_mib=0, source=source)
    return MemoryEstimate(fixed_mib=mib - per_slot * slots, per_slot_mib=per_slot, source=source)
