"""Read a folder in the form of the Hugging Face hub: `config.json`, and the headers of its safetensors files.

A header is its length in eight bytes and JSON (https://github.com/huggingface/safetensors#format).
"""

import struct
from pathlib import Path
from typing import Any

import msgspec

from shared.contracts.architecture import Architecture
from shared.models.metadata import MetadataError, read_count

LONGEST_HEADER = 100_000_000
"""The format's own limit in bytes."""
LONGEST_CONFIG = 1 << 20
TIED = "lm_head.weight"
"""With tied embeddings, the tensor that old checkpoints hold a second time and servers do not."""


def read_architecture(folder: Path) -> Architecture:
    """Read the architecture of the folder's model.

    Raises:
        MetadataError: a file is missing or broken, or lacks a field.
    """
    config = _read_config(folder / "config.json")
    heads = read_count(config, "num_attention_heads")
    embedding = read_count(config, "hidden_size")
    return Architecture(
        weights_bytes=_sum_weights(folder, tied=bool(config.get("tie_word_embeddings"))),
        layers=read_count(config, "num_hidden_layers"),
        heads=heads,
        kv_heads=read_count(config, "num_key_value_heads", heads),
        head_dim=read_count(config, "head_dim", embedding // heads or 1),
        embedding=embedding,
        vocabulary=read_count(config, "vocab_size"),
        trained_context=read_count(config, "max_position_embeddings"),
        name=str(config.get("model_type", "")),
    )


def _read_config(path: Path) -> dict[str, Any]:
    """Read `config.json`, with the text part of a multimodal model on top level."""
    found = _parse_object(path, _read(path, 0, LONGEST_CONFIG))
    text = found.get("text_config")
    return {**found, **text} if isinstance(text, dict) else found


def _sum_weights(folder: Path, *, tied: bool) -> int:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise MetadataError(f"{folder} holds no *.safetensors")
    sizes = {name: size for file in files for name, size in _read_tensor_sizes(file).items()}
    if tied and len(sizes) > 1:
        sizes.pop(TIED, None)
    return sum(sizes.values())


def _read_tensor_sizes(path: Path) -> dict[str, int]:
    """Read the bytes of each tensor."""
    (length,) = struct.unpack("<Q", _read(path, 0, 8).ljust(8, b"\0"))
    if not 0 < length <= LONGEST_HEADER:
        raise MetadataError(f"{path}: the header claims {length} bytes, at most {LONGEST_HEADER} are allowed")
    header = _parse_object(path, _read(path, 8, length))
    header.pop("__metadata__", None)
    try:
        return {name: _size(*tensor["data_offsets"]) for name, tensor in header.items()}
    except (KeyError, TypeError, ValueError) as error:
        raise MetadataError(f"{path}: a tensor lacks valid `data_offsets`") from error


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


def _parse_object(path: Path, content: bytes) -> dict[str, Any]:
    try:
        return msgspec.json.decode(content, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MetadataError(f"{path} is not a JSON object: {error}") from error
