"""The rule generator's tokenizer: as the world's, but no word is merged with the blank before it.

A name then has the same tokens at the start of a line, after a blank and in the box: to copy it is to repeat them.
"""

import json
import re
from collections.abc import Iterator
from random import Random
from typing import Any

from tokenizers import Regex, pre_tokenizers, trainers
from tokenizers import models as kinds
from transformers import PreTrainedTokenizerFast

from shared.rag.prompts import template
from world.relations.samples import LEVELS, TRAIN, level_sample
from world.tokenizer import byte_level, rebuilt_tokenizer

PIECES_APART = r"\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
SIZE = 2045  # with the three special tokens a multiple of 32
BLANK = "Ġ"


def build_relations_tokenizer(seed: int = 0) -> PreTrainedTokenizerFast:
    """Learn merges from training samples alone: every token is one that training shows."""
    bpe = byte_level(kinds.BPE())
    made: Any = pre_tokenizers
    bpe.pre_tokenizer = made.Sequence(
        [made.Split(Regex(PIECES_APART), "isolated"), made.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    words = fixed_words()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=SIZE - len(words), initial_alphabet=alphabet, show_progress=False)
    bpe.train_from_iterator(_texts(Random(seed)), trainer)
    learnt = json.loads(bpe.to_str())["model"]
    vocabulary, merges = dict(learnt["vocab"]), [tuple(pair) for pair in learnt["merges"]]
    for word in words:
        vocabulary[BLANK + word] = len(vocabulary)
        merges.append((BLANK, word))
    return rebuilt_tokenizer(vocabulary, merges)


def fixed_words() -> list[str]:
    """The longer words of the templates and of rules, which save a token each by holding their blank."""
    texts = [template(name).text for name in ("rulerag", "rulerag-cot", "cot")]
    return sorted({word for text in (*texts, " leads to  Entity") for word in re.findall(r"(?<= )[A-Za-z]{3,}", text)})


def _texts(rng: Random) -> Iterator[str]:
    for _ in range(12_000):
        sample = level_sample(rng, TRAIN, LEVELS["all"])
        yield f"user\n{sample.prompt}\nassistant\n{sample.reply}"
