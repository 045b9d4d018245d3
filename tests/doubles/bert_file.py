"""A tiny BERT as a GGUF file, with random weights: small enough to be written by each test that loads one.

llama.cpp reads it as it reads any other: only the model is a toy. Without `head` it is an encoder that pools by its
first token, with it a cross-encoder with one label.
"""

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORDS = ("circle", "radius", "area", "prime", "divisor", "derivative", "power", "the", "of", "a", "is", "two")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
DIMENSION = 32
CONTEXT = 64
"""Tokens, the two special ones included."""
ALIGNMENT = 32
FIRST_TOKEN = 2
"""llama.cpp's number of that pooling."""
NORMAL, CONTROL = 1, 3

Tensors = dict[str, NDArray[np.float32]]


def write(path: Path, *, head: bool = False, seed: int = 0, family: str = "bert") -> Path:
    """Another seed is another model; of another `family` only the header would be true."""
    tensors = _tensors(np.random.default_rng(seed), head=head)
    keys = {name.replace("bert.", f"{family}."): value for name, value in _keys(head=head).items()}
    keys["general.architecture"] = family
    infos, data = b"", b""
    for name, values in tensors.items():
        shape = struct.pack(f"<{values.ndim}Q", *values.shape[::-1])  # the innermost first
        infos += _text(name) + struct.pack("<I", values.ndim) + shape + struct.pack("<IQ", 0, len(data))
        data += _pad(values.tobytes())
    pairs = b"".join(_text(key) + _pack_value(value) for key, value in keys.items())
    start = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + pairs + infos
    path.write_bytes(_pad(start) + data)
    return path


def _keys(*, head: bool) -> dict[str, Any]:
    tokens = [*SPECIAL, *(f"\u2581{word}" for word in WORDS)]
    kinds = [CONTROL] * len(SPECIAL) + [NORMAL] * len(WORDS)
    pooling = {} if head else {"bert.pooling_type": FIRST_TOKEN}
    return {
        "general.architecture": "bert", "bert.context_length": CONTEXT, "bert.embedding_length": DIMENSION,
        "bert.block_count": 1, "bert.feed_forward_length": 2 * DIMENSION, "bert.attention.head_count": 2,
        "bert.attention.layer_norm_epsilon": 1e-12, "bert.attention.causal": False,
        "tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.token_type_count": 2, "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.unknown_token_id": 1, "tokenizer.ggml.bos_token_id": 2, "tokenizer.ggml.cls_token_id": 2,
        "tokenizer.ggml.eos_token_id": 3, "tokenizer.ggml.seperator_token_id": 3, "tokenizer.ggml.mask_token_id": 4,
        **pooling,
    }  # fmt: skip


def _tensors(random: np.random.Generator, *, head: bool) -> Tensors:
    size, wide = DIMENSION, 2 * DIMENSION
    matrices = {
        "token_embd.weight": (len(SPECIAL) + len(WORDS), size), "token_types.weight": (2, size),
        "position_embd.weight": (CONTEXT, size),
    }  # fmt: skip
    layers = {f"blk.0.attn_{part}": (size, size) for part in ("q", "k", "v", "output")}
    layers |= {"blk.0.ffn_up": (wide, size), "blk.0.ffn_down": (size, wide)}
    layers |= {"cls": (size, size), "cls.output": (1, size)} if head else {}
    norms = ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm")
    tensors = {name: random.standard_normal(shape) for name, shape in matrices.items()}
    for name, (out, into) in layers.items():
        tensors |= {
            f"{name}.weight": random.standard_normal((out, into)) / np.sqrt(into),
            f"{name}.bias": np.zeros(out),
        }
    for name in norms:
        tensors |= {f"{name}.weight": np.ones(size), f"{name}.bias": np.zeros(size)}
    return {name: values.astype(np.float32) for name, values in tensors.items()}


def _text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def _pack_value(value: Any) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
    of, parts = (
        (8, map(_text, value)) if isinstance(value[0], str) else (5, (struct.pack("<i", each) for each in value))
    )
    return struct.pack("<IIQ", 9, of, len(value)) + b"".join(parts)


def _pad(content: bytes) -> bytes:
    return content + bytes(-len(content) % ALIGNMENT)
