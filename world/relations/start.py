"""The first stage's start: a shipped model's layers under a tokenizer of the stage's own."""

from typing import Any

import torch


def move_embeddings(old: Any, old_tokenizer: Any, new: Any, new_tokenizer: Any) -> None:
    """Put the weights of `old` into `new`; a token's vector is the mean of what its text was before.

    Rows that only pad the matrix keep their random values.
    """
    weights = {name: values for name, values in old.state_dict().items() if "embed_tokens" not in name}
    weights.pop("lm_head.weight")
    new.load_state_dict(weights, strict=False)
    before, after = old.get_input_embeddings().weight, new.get_input_embeddings().weight
    with torch.no_grad():
        for index in range(len(new_tokenizer)):
            text = new_tokenizer.convert_ids_to_tokens(index)
            after[index] = before[_old_tokens(old_tokenizer, text)].mean(0)


def _old_tokens(tokenizer: Any, text: str) -> list[int]:
    """The ids of the pieces that stood for a token's text; `text` is in the alphabet of byte-level BPE."""
    known = tokenizer.convert_tokens_to_ids(text)
    if known is not None:
        return [known]
    return [piece.id for piece in tokenizer.backend_tokenizer.model.tokenize(text)]
