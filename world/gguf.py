"""Write a trained model as GGUF: ``python -m world.gguf FOLDER FILE``.

Matrices are stored as F16, vectors as F32.  The usual converter refuses a home-made
tokenizer, hence this one; Qwen2's layout needs no permutation of the weights.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import load_file

from world.tokenizer import CHAT_TEMPLATE, END, STOP

_LAYER_PARTS = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_TOP_PARTS = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight"}
TIED = "lm_head.weight"  # equals the embedding, which the engine then uses for both


def export(folder: Path, target: Path, name: str) -> None:
    """Write the model in ``folder`` to ``target`` under a display name."""
    config = json.loads((folder / "config.json").read_text())
    writer = gguf.GGUFWriter(str(target), "qwen2")
    writer.add_name(name)
    _write_shape(writer, config)
    _write_tokenizer(writer, json.loads((folder / "tokenizer.json").read_text()), config)
    for key, values in load_file(folder / "model.safetensors").items():
        if key != TIED:
            kind = np.float32 if values.ndim == 1 else np.float16
            writer.add_tensor(tensor_name(key), values.astype(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensor_name(key: str) -> str:
    """Return the GGUF name of a weight, such as ``blk.0.attn_q.bias`` for layer 0's query bias."""
    if key in _TOP_PARTS:
        return _TOP_PARTS[key]
    _, _, layer, *path, suffix = key.split(".")
    return f"blk.{layer}.{_LAYER_PARTS['.'.join(path)]}.{suffix}"


def _write_shape(writer: Any, config: dict[str, Any]) -> None:
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)


def _write_tokenizer(writer: Any, tokenizer: dict[str, Any], config: dict[str, Any]) -> None:
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    tokens, types = _vocabulary(tokenizer, special, config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in tokenizer["model"]["merges"]])
    writer.add_eos_token_id(special[STOP])
    writer.add_pad_token_id(special[END])
    writer.add_bos_token_id(special[END])
    writer.add_add_bos_token(value=False)
    writer.add_chat_template(CHAT_TEMPLATE)


def _vocabulary(tokenizer: dict[str, Any], special: dict[str, int], size: int) -> tuple[list[str], list[int]]:
    """List all tokens with their types; ids that only pad the matrix are marked unused."""
    tokens = [f"[PAD{index}]" for index in range(size)]
    types = [int(gguf.TokenType.UNUSED)] * size
    for text, index in {**tokenizer["model"]["vocab"], **special}.items():
        tokens[index] = text
        types[index] = int(gguf.TokenType.CONTROL if text in special else gguf.TokenType.NORMAL)
    return tokens, types


def main() -> None:
    """Parse the command line and export."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="what world.train wrote")
    parser.add_argument("file", type=Path)
    args = parser.parse_args()
    export(args.folder, args.file, args.file.stem)


if __name__ == "__main__":
    main()
