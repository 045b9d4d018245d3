"""The dimensions of a model, from which its memory is estimated."""

import msgspec

MIB = 1 << 20


class Architecture(msgspec.Struct, frozen=True, kw_only=True):
    """The dimensions of a model according to its metadata: a GGUF header, a `config.json`, or Ollama's `show`."""

    weights_bytes: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    embedding: int
    vocabulary: int
    trained_context: int
    name: str = ""
    """Family of the model, as the metadata call it, such as "qwen2"."""

    @property
    def weights_mib(self) -> float:
        """Return the size of the weights in MiB: a load reads all of them, and so does each token of a dense model."""
        return self.weights_bytes / MIB
