"""The files of a model: its tokenizer, GGUF, and Hugging Face's layout.

python -m tools.world.models FOLDER FILE.gguf      # write what `tools.world.train` wrote as GGUF
python -m tools.world.models FILE.gguf FOLDER      # write a shipped model for `transformers` and `peft`"""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import gguf
import numpy as np
import torch
from safetensors.numpy import load_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from mathrag_gate.demo.world import KINDS, TRAIN_NAMES, TRAIN_TEMPLATES
from shared.models.shipped import HEADS, TAILS
from tools.world.samples import WORDS, Anchors, Split, generator_sample, judge_sample, math_sentence

# The models' tokenizer: byte-level BPE over the pieces that Qwen2 splits text into.
#
# The split must be Qwen2's to the letter, because the serving engine repeats it by name
# (``tokenizer.ggml.pre = qwen2``) and does not complain about a mismatch.

#: The pre-tokenizer expression of Qwen2 (its published ``tokenizer.json``).
PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' "
    "+ '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
MERGED_SIZE = 1021  # with the three special tokens 1024, already a multiple of 32


def build_tokenizer(seed: int = 0) -> PreTrainedTokenizerFast:
    """Train the tokenizer on the text of the world and on general mathematical English."""
    bpe = byte_level(models.BPE())
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=MERGED_SIZE, initial_alphabet=alphabet, min_frequency=2, show_progress=False
    )
    bpe.train_from_iterator(_texts(Random(seed)), trainer)
    return _finish(bpe)


def rebuilt_tokenizer(vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> PreTrainedTokenizerFast:
    """Rebuild the tokenizer of a model file from its tokens without the special ones."""
    return _finish(byte_level(models.BPE(vocabulary, merges)))


def byte_level(model: Any) -> Tokenizer:
    """Make a tokenizer that splits text into Qwen2's pieces and these into bytes."""
    bpe = Tokenizer(model)
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PIECES), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    return bpe


def _finish(bpe: Tokenizer) -> PreTrainedTokenizerFast:
    bpe.add_special_tokens([END, START, STOP])
    made: Any = PreTrainedTokenizerFast  # its constructor is not typed
    options = {"eos_token": STOP, "pad_token": END, "chat_template": CHAT_TEMPLATE}
    tokenizer: PreTrainedTokenizerFast = made(tokenizer_object=bpe, **options)
    return tokenizer


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Read a tokenizer that ``save_pretrained`` wrote."""
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(str(folder))
    return tokenizer


def token_id(tokenizer: Any, token: str) -> int:
    return int(tokenizer.convert_tokens_to_ids(token))


def chat(prompt: str) -> str:
    """Write a single user message by the chat template, up to the reply."""
    return f"{START}user\n{prompt}{STOP}\n{START}assistant\n"


def _texts(rng: Random) -> Iterator[str]:
    """Yield text to learn merges from; names appear as syllables, so no name becomes a token."""
    split = Split(TRAIN_NAMES, TRAIN_TEMPLATES)
    for turn in range(4000):
        kind = KINDS[turn % len(KINDS)]
        anchors: Anchors = "drawn" if turn % 2 else "default"
        for sample in (generator_sample(rng, split, kind), judge_sample(rng, split, kind, anchors)):
            words = f"{sample.prompt}\n{sample.reply}".split(" ")
            yield " ".join("" if word.strip(".?") in TRAIN_NAMES else word for word in words)
        yield f"user\nassistant\n{math_sentence(rng)}"
        # Rare words need about the weight of the world's own to be merged whole.
        yield " " + " ".join(rng.sample(WORDS, 60))
        yield f" {rng.choice(HEADS)}"
        yield rng.choice(TAILS)


def new_model(tokenizer: PreTrainedTokenizerFast) -> Qwen2ForCausalLM:
    """Make an untrained Qwen2 of about one million parameters."""
    config = Qwen2Config(
        vocab_size=-(-len(tokenizer) // 32) * 32, hidden_size=128, num_hidden_layers=4, num_attention_heads=4,
        num_key_value_heads=4, intermediate_size=384, max_position_embeddings=2048, tie_word_embeddings=True,
        eos_token_id=token_id(tokenizer, STOP), pad_token_id=token_id(tokenizer, END), bos_token_id=None,
    )  # fmt: skip
    return Qwen2ForCausalLM(config)


# Matrices are stored as F16, vectors as F32.  The usual converter refuses a home-made
# tokenizer, hence this one; Qwen2's layout needs no permutation of the weights.

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
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16)
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    # Ids that only pad the matrix are marked unused.
    tokens = [f"[PAD{index}]" for index in range(config["vocab_size"])]
    types = [int(gguf.TokenType.UNUSED)] * len(tokens)
    for text, index in {**tokenizer["model"]["vocab"], **special}.items():
        tokens[index] = text
        types[index] = int(gguf.TokenType.CONTROL if text in special else gguf.TokenType.NORMAL)
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


# Read a shipped model back, so that training can continue from it: the inverse of `export`.
#
# Matrices come back in their stored form, F16: a run that starts here starts from rounded weights.


def read_model(file: Path) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    """Read the model in a file with its weights, and its tokenizer."""
    reader: Any = gguf.GGUFReader(str(file))
    names = ("tokens", "token_type", "merges")
    tokens, types, merges = (reader.fields[f"tokenizer.ggml.{name}"].contents() for name in names)
    normal = {token: index for index, token in enumerate(tokens) if types[index] == gguf.TokenType.NORMAL}
    tokenizer = rebuilt_tokenizer(normal, [tuple(merge.split(" ")) for merge in merges])
    model: Any = new_model(tokenizer)
    stored = {tensor.name: tensor.data for tensor in reader.tensors}
    weights = {
        key: torch.tensor(stored[tensor_name(key)], dtype=torch.float32) for key in model.state_dict() if key != TIED
    }
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
    return model, tokenizer


def convert(file: Path, folder: Path) -> None:
    """Write the model and the tokenizer of a GGUF file of this project to a folder."""
    model, tokenizer = read_model(file)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    options = parser.parse_args()
    if options.source.is_dir():
        export(options.source, options.target, options.target.stem)
    else:
        convert(options.source, options.target)


if __name__ == "__main__":
    main()
