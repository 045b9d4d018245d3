"""Read a shipped model back, so that training can go on from it: the inverse of ``world.gguf``.

Matrices come back as they were stored, in F16: a run that starts here starts from rounded weights.
"""

from pathlib import Path
from typing import Any

import gguf
import torch
from transformers import PreTrainedTokenizerFast, Qwen2ForCausalLM

from world.architecture import new_model
from world.gguf import TIED, tensor_name
from world.tokenizer import rebuilt_tokenizer


def read_tokenizer(file: Path) -> PreTrainedTokenizerFast:
    """The tokenizer that a model file holds."""
    fields: Any = gguf.GGUFReader(str(file)).fields
    tokens, types, merges = (fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "token_type", "merges"))
    normal = {token: index for index, token in enumerate(tokens) if types[index] == gguf.TokenType.NORMAL}
    return rebuilt_tokenizer(normal, [tuple(merge.split(" ")) for merge in merges])


def read_model(file: Path) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    """The model in a file with its weights, and its tokenizer."""
    tokenizer = read_tokenizer(file)
    model = new_model(tokenizer)
    read_weights(file, model)
    return model, tokenizer


def read_weights(file: Path, model: Any) -> None:
    """Put a model file's weights into ``model``, which has its shape."""
    stored: Any = {tensor.name: tensor.data for tensor in gguf.GGUFReader(str(file)).tensors}
    weights = {
        key: torch.tensor(stored[tensor_name(key)], dtype=torch.float32) for key in model.state_dict() if key != TIED
    }
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
