"""How much memory a model takes on its device, before it was ever loaded. Pure.

    footprint = weights + KV cache + compute buffer + context
    KV cache  = 2 * layers * kv_heads * head_dim * bytes per value * context * parallel
    compute   = 4 * batch * (vocabulary + embedding)

The compute buffer holds the logits and the last hidden states of one batch as 32-bit floats: what llama.cpp reserves
with flash attention, and the first term of Ollama's `GraphSize` for Qwen2 (fs/ggml/ggml.go). A batch is not longer than
the slots' contexts together. All weights are counted, though llama.cpp leaves input embeddings in main memory: an upper
end. The context is what a CUDA process takes before it holds anything; a process on a CPU has none.

An estimate is what a plan starts from; loads that were verified correct it (`shared/lease/bands.py`).
"""

import math

import msgspec

MIB = 1 << 20
F16_BYTES = 2.0
Q8_BYTES = 34 / 32
"""Of a value in llama.cpp's `q8_0`: blocks of 32 bytes with a scale of two."""
BATCH = 512
"""Tokens computed at once: the default of llama.cpp (`n_ubatch`) and of Ollama."""
CUDA_CONTEXT_MIB = 358.0
"""0.35 GiB, an estimate; it differs by driver and GPU, which is one reason why loads are measured."""


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """Of a model's metadata, what its footprint follows from: a GGUF header, a `config.json`, Ollama's `show`."""

    weights_bytes: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    embedding: int
    vocabulary: int
    trained_context: int
    name: str = ""
    """The family, as the metadata call it: "qwen2"."""


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """Memory by what it is for, in MiB."""

    weights_mib: float
    kv_mib: float
    compute_mib: float
    context_mib: float

    @property
    def total(self) -> int:
        """All of it, in whole MiB rounded up: what is held against a budget."""
        return math.ceil(self.weights_mib + self.kv_mib + self.compute_mib + self.context_mib)


def estimate(
    architecture: Architecture,
    *,
    context: int,
    parallel: int,
    kv_bytes: float = F16_BYTES,
    batch: int = BATCH,
    on_gpu: bool = True,
) -> Footprint:
    """The footprint with `parallel` slots of `context` tokens each.

    `kv_bytes`: of one value in the KV cache; `batch`: tokens computed at once.
    """
    tokens = context * parallel
    values = 2 * architecture.layers * architecture.kv_heads * architecture.head_dim * tokens
    activations = min(batch, tokens) * (architecture.vocabulary + architecture.embedding)
    return Footprint(
        weights_mib=architecture.weights_bytes / MIB,
        kv_mib=values * kv_bytes / MIB,
        compute_mib=4 * activations / MIB,
        context_mib=CUDA_CONTEXT_MIB if on_gpu else 0.0,
    )
