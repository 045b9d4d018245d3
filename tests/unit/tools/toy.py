"""A toy graph, and embeddings whose questions and facts share no word but the entity's name."""

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

PEOPLE = 60
NUMBERS = 64
RELATIONS = ("met", "sued", "paid", "knew")
QUESTION, RULE = "whose ally is {}", "visited leads to allied"
WORDS = ("[UNK]", *QUESTION.split(), *RULE.split(), *RELATIONS, *(f"p{number}" for number in range(PEOPLE)))


def embeddings(folder: Path) -> Path:
    """Random vectors for `WORDS`."""
    folder.mkdir()
    tokenizer = Tokenizer(WordLevel({word: at for at, word in enumerate(dict.fromkeys(WORDS))}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text("{}")
    vectors = np.random.default_rng(1).standard_normal((tokenizer.get_vocab_size(), NUMBERS)).astype(np.float32)
    save_file({"embeddings": vectors}, folder / "model.safetensors")
    return folder


def pairs(file: Path, people: range = range(PEOPLE)) -> Path:
    """A person's ally is whom the person has met; sued, paid and known are others."""
    lines = []
    for person in people:
        facts = [f"p{person} {relation} p{(person * 7 + at) % PEOPLE}" for at, relation in enumerate(RELATIONS, 1)]
        pair = {"query": QUESTION.format(f"p{person}"), "rule": RULE, "positives": facts[:1], "negatives": facts[1:]}
        lines.append(json.dumps(pair) + "\n")
    file.write_text("".join(lines))
    return file
