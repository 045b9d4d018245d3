"""Write a test corpus and dataset: ``python -m world.corpus --seed 1 --setting orthogonal --out DIR``.

``corpus.jsonl`` holds the documents to retrieve from, ``dataset.jsonl`` the questions.
No question is about a name, or in a phrasing, that a model was trained on.
"""

import argparse
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from world import setting as settings
from world.distractors import distractors
from world.items import PAIRS, PHRASINGS, OperatorQuestion, item
from world.problems import TEST_NAMES, Document, Kind, Operator, document
from world.setting import Setting
from world.wording import Language

#: The documents worth finding, as they let the generator answer: the rule with its steps, the rule, steps alone.
GOLD: Mapping[Kind, int] = {"full": 3, "rule": 2, "steps": 1}

Row = Mapping[str, object]


class GeneratedCorpus(NamedTuple):
    """Documents, and questions about their operators."""

    documents: list[Document]
    items: list[OperatorQuestion]


def build(seed: int, setting: Setting | None = None) -> GeneratedCorpus:
    """Build the corpus of a seed and a setting, the demo's by default; it is the same on every machine."""
    setting = setting or Setting()
    rng = Random(f"corpus {seed}")
    names = rng.sample(TEST_NAMES, setting.operators)
    chinese = round(setting.chinese * len(names))
    corpus = GeneratedCorpus([], [])
    for number, (name, count) in enumerate(zip(names, _shares(rng, setting), strict=True)):
        part = _about(rng, setting, Operator(name, setting.rule(rng)), count, "zh" if number < chinese else "en")
        corpus.documents.extend(part.documents)
        corpus.items.extend(part.items)
    rng.shuffle(corpus.documents)
    rng.shuffle(corpus.items)
    return corpus


def _shares(rng: Random, setting: Setting) -> list[int]:
    """Draw how many items each operator gets; the numbers are uneven, and at least one if there are enough items."""
    operators, most = setting.operators, setting.most_items
    shares = [1 if index < setting.items else 0 for index in range(operators)]
    weights = [rng.random() for _ in range(operators)]
    for _ in range(setting.items - sum(shares)):
        free = [index for index in range(operators) if shares[index] < most]
        (index,) = rng.choices(free, [weights[index] for index in free])
        shares[index] += 1
    return shares


def _about(rng: Random, setting: Setting, operator: Operator, items: int, language: Language) -> GeneratedCorpus:
    """Make documents and items of one operator, over pairs of operands that never repeat."""
    kinds = setting.kinds(rng)
    pairs = rng.sample(PAIRS, len(kinds) + items)
    documents = [
        document(rng, operator, kind, PHRASINGS[language], *pair, setting.draw_wording(rng, kind, language))
        for kind, pair in zip(kinds, pairs, strict=False)
    ]
    questions = [item(rng, operator, *pair, language) for pair in pairs[len(kinds) :]]
    free = [pair for pair in PAIRS if pair not in pairs]
    return GeneratedCorpus([*documents, *distractors(rng, setting, questions, free, language)], questions)


def document_row(index: int, item: Document) -> Row:
    """Make a line of ``corpus.jsonl``."""
    meta = {"kind": item.kind, "operator": item.operator.name}
    return {"id": document_id(index), "problem": item.problem, "text": item.text, "meta": meta}


def document_id(index: int) -> str:
    """Return the id of line ``index`` of ``corpus.jsonl``."""
    return f"doc-{index:04}"


def gold_documents(documents: Iterable[Document]) -> dict[str, dict[str, int]]:
    """Return each operator's useful documents with their grades, by operator name."""
    found: dict[str, dict[str, int]] = {}
    for index, each in enumerate(documents):
        if each.kind in GOLD:
            found.setdefault(each.operator.name, {})[document_id(index)] = GOLD[each.kind]
    return found


def item_row(index: int, item: OperatorQuestion, gold: Mapping[str, int]) -> Row:
    """Make a line of ``dataset.jsonl``; ``gold`` are the documents that help with it."""
    return {
        "id": f"item-{index:04}",
        "question": item.question,
        "answer": str(item.operator.rule.result(item.a, item.b)),
        "subject": "operators",
        "level": f"Level {item.operator.rule.level}",
        "gold_documents": gold,
    }


def write(corpus: GeneratedCorpus, out: Path) -> None:
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
    parser.add_argument("--setting", choices=settings.names(), help="default: the demo's")
    parser.add_argument("--operators", type=int, help=f"at most {len(TEST_NAMES)}; default: the setting's")
    parser.add_argument("--items", type=int, help="default: the setting's")
    args = parser.parse_args()
    sizes = {name: size for name in ("operators", "items") if (size := getattr(args, name)) is not None}
    chosen = settings.read(args.setting) if args.setting else Setting()
    write(build(args.seed, settings.change_setting(chosen, **sizes)), args.out)


if __name__ == "__main__":
    main()
