"""What Ollama's `/api/show` says of a pulled model: the keys of its GGUF header, long arrays left out."""

from collections.abc import Mapping
from typing import Any

from shared.contracts.architecture import Architecture
from shared.models.metadata import gguf
from shared.models.metadata.gguf import TOKENS

EMBEDDINGS = "token_embd.weight"
"""The tensor with a row per token: how many there are no key says."""


def architecture(shown: Mapping[str, Any], size: int) -> Architecture:
    """From the answer of `/api/show`; `size`: bytes of the model, as `/api/tags` lists it.

    Raises:
        MetadataError: it says too little.
    """
    info = shown.get("model_info")
    values = info if isinstance(info, Mapping) else {}
    return gguf.of_keys(values, weights_bytes=size, vocabulary=_vocabulary(values, shown.get("tensors")))


def _vocabulary(values: Mapping[str, Any], tensors: Any) -> int | None:
    """As many as there are embeddings, or as tokens where they are listed."""
    for tensor in tensors if isinstance(tensors, list) else ():
        if isinstance(tensor, Mapping) and tensor.get("name") == EMBEDDINGS and isinstance(tensor.get("shape"), list):
            return max((size for size in tensor["shape"] if isinstance(size, int)), default=None)
    tokens = values.get(TOKENS)
    return len(tokens) if isinstance(tokens, list) and tokens else None
