"""Read the architecture from Ollama's `/api/show`: the keys of the GGUF header without long arrays."""

from collections.abc import Mapping
from typing import Any

from shared.contracts.architecture import Architecture
from shared.models.metadata import gguf
from shared.models.metadata.gguf import TOKENS

EMBEDDINGS = "token_embd.weight"
"""The tensor with one row per token, which tells the vocabulary, since no key does."""


def parse_architecture(shown: Mapping[str, Any], size: int) -> Architecture:
    """Parse the answer of `/api/show`; `size` is the model's bytes as `/api/tags` lists them.

    Raises:
        MetadataError: a key is missing or malformed.
    """
    info = shown.get("model_info")
    values = info if isinstance(info, Mapping) else {}
    return gguf.architecture_from_keys(
        values, weights_bytes=size, vocabulary=_count_vocabulary(values, shown.get("tensors"))
    )


def _count_vocabulary(values: Mapping[str, Any], tensors: Any) -> int | None:
    """Count the rows of the embeddings, or else the listed tokens; None if neither is there."""
    for tensor in tensors if isinstance(tensors, list) else ():
        if isinstance(tensor, Mapping) and tensor.get("name") == EMBEDDINGS and isinstance(tensor.get("shape"), list):
            return max((size for size in tensor["shape"] if isinstance(size, int)), default=None)
    tokens = values.get(TOKENS)
    return len(tokens) if isinstance(tokens, list) and tokens else None
