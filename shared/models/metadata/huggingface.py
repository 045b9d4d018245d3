"""A folder as the Hugging Face hub has it: `config.json`, and the headers of its safetensors files.

The header is a length of eight bytes and JSON (https://github.com/huggingface/safetensors#format).
"""

import struct
from pathlib import Path
from typing import Any

import msgspec

from shared.contracts.architecture import Architecture
from shared.models.metadata import MetadataError, whole

LONGEST_HEADER = 100_000_000
"""Bytes; the format's own limit."""
LONGEST_CONFIG = 1 << 20
TIED = "lm_head.weight"
"""Of tied embeddings, what old checkpoints hold twice and servers hold once."""


def architecture(folder: Path) -> Architecture:
    """What the folder says of its model.

    Raises:
        MetadataError: a file is missing, broken, or says too little.
    """
    config = _config(folder / "config.json")
    heads = whole(config, "num_attention_heads")
    embedding = whole(config, "hidden_size")
    return Architecture(
        weights_bytes=_weights(folder, tied=bool(config.get("tie_word_embeddings"))),
        layers=whole(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=whole(config, "num_key_value_heads", heads),
        head_dim=whole(config, "head_dim", embedding // heads or 1),
        embedding=embedding,
        vocabulary=whole(config, "vocab_size"),
        trained_context=whole(config, "max_position_embeddings"),
        name=str(config.get("model_type", "")),
    )


def _config(path: Path) -> dict[str, Any]:
    """Of a model that also sees or hears, the part that writes."""
    found = _object(path, _read(path, 0, LONGEST_CONFIG))
    text = found.get("text_config")
    return {**found, **text} if isinstance(text, dict) else found


def _weights(folder: Path, *, tied: bool) -> int:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise MetadataError(f"{folder} holds no *.safetensors")
    sizes = {name: size for file in files for name, size in _tensors(file).items()}
    if tied and len(sizes) > 1:
        sizes.pop(TIED, None)
    return sum(sizes.values())


def _tensors(path: Path) -> dict[str, int]:
    """Bytes by tensor."""
    (length,) = struct.unpack("<Q", _read(path, 0, 8).ljust(8, b"\0"))
    if not 0 < length <= LONGEST_HEADER:
        raise MetadataError(f"{path}: a header of {length} bytes")
    header = _object(path, _read(path, 8, length))
    header.pop("__metadata__", None)
    try:
        return {name: _size(*tensor["data_offsets"]) for name, tensor in header.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataError(f"{path}: a tensor without `data_offsets`") from error


def _size(begin: int, end: int) -> int:
    if not 0 <= begin <= end:
        raise ValueError(begin)
    return end - begin


def _read(path: Path, start: int, most: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(most)
    except OSError as error:
        raise MetadataError(f"{path}: {error.strerror}") from error


def _object(path: Path, content: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MetadataError(f"{path} is no JSON object: {error}") from error
