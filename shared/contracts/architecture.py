"""The shape of a model, which its memory follows from."""

import msgspec

MIB = 1 << 20


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """What a model's metadata say of it: a GGUF header, a `config.json`, Ollama's `show`."""

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

    @property
    def weights_mib(self) -> float:
        """What a load reads, and what a token reads of them."""
        return self.weights_bytes / MIB
