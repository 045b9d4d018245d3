"""The models' tokenizer: byte-level BPE over the pieces that Qwen2 splits text into.

The split must be Qwen2's to the letter, because the serving engine repeats it by name
(``tokenizer.ggml.pre = qwen2``) and does not complain about a mismatch.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from world.problems import HEADS, KINDS, TAILS, TRAIN_NAMES, TRAIN_TEMPLATES
from world.samples import Split, generator_sample, judge_sample
from world.words import WORDS, math_sentence

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
    tokenizer: PreTrainedTokenizerFast = made(
        tokenizer_object=bpe, eos_token=STOP, pad_token=END, chat_template=CHAT_TEMPLATE
    )
    return tokenizer


def load_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    """Read a tokenizer that ``save_pretrained`` wrote."""
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(str(folder))
    return tokenizer


def token_id(tokenizer: Any, token: str) -> int:
    """Return the id of a special token."""
    return int(tokenizer.convert_tokens_to_ids(token))


def chat(prompt: str) -> str:
    """Write a single user message by the chat template, up to the reply."""
    return f"{START}user\n{prompt}{STOP}\n{START}assistant\n"


def _texts(rng: Random) -> Iterator[str]:
    """Yield text to learn merges from; names appear as syllables, so no name becomes a token."""
    split = Split(TRAIN_NAMES, TRAIN_TEMPLATES)
    for turn in range(4000):
        kind = KINDS[turn % len(KINDS)]
        for sample in (
            generator_sample(rng, split, kind),
            judge_sample(rng, split, kind, "drawn" if turn % 2 else "default"),
        ):
            yield _hide_names(f"{sample.prompt}\n{sample.reply}")
        yield f"user\nassistant\n{math_sentence(rng)}"
        # Rare words need about the weight of the world's own to be merged whole.
        yield " " + " ".join(rng.sample(WORDS, 60))
        yield f" {rng.choice(HEADS)}"
        yield rng.choice(TAILS)


def _hide_names(text: str) -> str:
    return " ".join("" if word.strip(".?") in TRAIN_NAMES else word for word in text.split(" "))
