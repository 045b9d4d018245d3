"""Write a test corpus and dataset: ``python -m world.corpus --seed 1 --out DIR``.

``corpus.jsonl`` holds the documents to retrieve from, ``dataset.jsonl`` the questions.
Only names and phrasings that no model was trained on occur.  Standard library only.
"""

import argparse
import json
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

from world.problems import (
    TEST_NAMES,
    TEST_TEMPLATES,
    Document,
    Kind,
    Operator,
    document,
    question,
    random_rule,
)

#: Every operator's documents, and what up to two more are drawn from; a good document is
#: always there, and always outnumbered.
BASE_KINDS: tuple[Kind, ...] = ("full", "steps", "rule", "wrong", "wrong", "answer", "answer")
EXTRA_KINDS: tuple[Kind, ...] = ("steps", "wrong", "answer")
#: The documents worth finding, as they let the generator answer: the rule with its steps, the rule, steps alone.
GOLD: Mapping[Kind, int] = {"full": 3, "rule": 2, "steps": 1}
MOST_ITEMS = 100 - len(BASE_KINDS) - 2  # per operator: what documents leave of the operands

Row = Mapping[str, object]


class Item(NamedTuple):
    """A question of the dataset."""

    operator: Operator
    a: int
    b: int
    question: str


class Corpus(NamedTuple):
    """The documents and the questions about their operators."""

    documents: list[Document]
    items: list[Item]


def build(seed: int, operators: int = 40, items: int = 100) -> Corpus:
    """The corpus of a seed, the same on every machine."""
    if items > operators * MOST_ITEMS:
        raise ValueError(f"{operators} operators allow {operators * MOST_ITEMS} items at most")
    rng = Random(f"corpus {seed}")
    names = rng.sample(TEST_NAMES, operators)
    corpus = Corpus([], [])
    for name, count in zip(names, _shares(rng, operators, items), strict=True):
        part = _about(rng, Operator(name, random_rule(rng)), count)
        corpus.documents.extend(part.documents)
        corpus.items.extend(part.items)
    rng.shuffle(corpus.documents)
    rng.shuffle(corpus.items)
    return corpus


def _shares(rng: Random, operators: int, items: int) -> list[int]:
    """How many items each operator gets: uneven, at least one if there are enough."""
    shares = [1 if index < items else 0 for index in range(operators)]
    weights = [rng.random() for _ in range(operators)]
    for _ in range(items - sum(shares)):
        free = [index for index in range(operators) if shares[index] < MOST_ITEMS]
        (index,) = rng.choices(free, [weights[index] for index in free])
        shares[index] += 1
    return shares


def _about(rng: Random, operator: Operator, items: int) -> Corpus:
    """Documents and items of one operator, over operands that never repeat."""
    kinds = [*BASE_KINDS, *rng.choices(EXTRA_KINDS, k=rng.randint(0, 2))]
    pairs = rng.sample(list(product(range(10), repeat=2)), len(kinds) + items)
    documents = [
        document(rng, operator, kind, TEST_TEMPLATES, a, b) for kind, (a, b) in zip(kinds, pairs, strict=False)
    ]
    asked = [Item(operator, a, b, question(rng, TEST_TEMPLATES, operator.name, a, b)) for a, b in pairs[len(kinds) :]]
    return Corpus(documents, asked)


def document_row(index: int, item: Document) -> Row:
    """A line of ``corpus.jsonl``."""
    meta = {"kind": item.kind, "operator": item.operator.name}
    return {"id": document_id(index), "problem": item.problem, "text": item.text, "meta": meta}


def document_id(index: int) -> str:
    """How line ``index`` of ``corpus.jsonl`` is called."""
    return f"doc-{index:04}"


def gold_documents(documents: Iterable[Document]) -> dict[str, dict[str, int]]:
    """By operator name, its useful documents with their grades."""
    found: dict[str, dict[str, int]] = {}
    for index, each in enumerate(documents):
        if each.kind in GOLD:
            found.setdefault(each.operator.name, {})[document_id(index)] = GOLD[each.kind]
    return found


def item_row(index: int, item: Item, gold: Mapping[str, int]) -> Row:
    """A line of ``dataset.jsonl``; ``gold`` are the documents that help with it."""
    return {
        "id": f"item-{index:04}",
        "question": item.question,
        "answer": str(item.operator.rule.result(item.a, item.b)),
        "subject": "operators",
        "level": f"Level {item.operator.rule.level}",
        "gold_documents": gold,
    }


def write(corpus: Corpus, out: Path) -> None:
    """Write both files to the folder ``out``, creating it."""
    out.mkdir(parents=True, exist_ok=True)
    _write_rows(out / "corpus.jsonl", map(document_row, range(10**6), corpus.documents))
    gold = gold_documents(corpus.documents)
    rows = (item_row(index, item, gold[item.operator.name]) for index, item in enumerate(corpus.items))
    _write_rows(out / "dataset.jsonl", rows)


def _write_rows(path: Path, rows: Iterable[Row]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def main() -> None:
    """Parse the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--operators", type=int, default=40, help=f"at most {len(TEST_NAMES)}")
    parser.add_argument("--items", type=int, default=100)
    args = parser.parse_args()
    write(build(args.seed, args.operators, args.items), args.out)


if __name__ == "__main__":
    main()
