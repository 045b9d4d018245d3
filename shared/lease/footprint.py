"""How much memory a model takes on its device, before it was ever loaded. Pure.

    footprint = weights + KV cache + compute buffer + context
    KV cache  = 2 * layers * kv_heads * head_dim * bytes per value * context * parallel

An estimate is what a plan starts from; loads that were verified correct it
(`shared/lease/bands.py`).
"""

import msgspec


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
