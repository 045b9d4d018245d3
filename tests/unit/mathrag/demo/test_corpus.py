"""The corpus and dataset that ``mathrag.demo.world`` writes."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from mathrag.demo.world import TEST_NAMES, TEST_TEMPLATES, Setting, build, write
from shared.ingest.datasets import read_corpus_line, read_dataset
from shared.ingest.paths import corpus_lines, dataset_lines

Row = dict[str, Any]
RULE = re.compile(r"a \w+ b = \((\d)([+*])([ab])\)([-+*])([ab])\.")


def rows(folder: Path, name: str) -> list[Row]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.fixture(scope="module", params=[1, 2])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("world")
    write(build(request.param), out)
    return out


def kinds(folder: Path) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    for row in rows(folder, "corpus.jsonl"):
        counts.setdefault(row["meta"]["operator"], Counter())[row["meta"]["kind"]] += 1
    return counts


def operands(text: str) -> tuple[str, str, str]:
    found = re.search(r"(\d) (\w+) (\d)", text)
    assert found
    return found[1], found[2], found[3]


def by_hand(text: str, a: int, b: int) -> int:
    found = RULE.search(text)
    assert found
    values = {"a": a, "b": b}
    signs = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__}
    middle = signs[found[2]](int(found[1]), values[found[3]])
    return signs[found[4]](middle, values[found[5]]) % 10


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write(build(7), tmp_path / name)
    for file in ("corpus.jsonl", "dataset.jsonl"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes()


def test_seeds_differ() -> None:
    first, second = build(1), build(2)
    assert first.documents != second.documents
    rules = [{item.operator.name: item.operator.rule for item in corpus.documents} for corpus in (first, second)]
    shared = rules[0].keys() & rules[1].keys()
    assert any(rules[0][name] != rules[1][name] for name in shared)


def test_every_operator_has_a_full_document_among_more_wrong_ones(folder: Path) -> None:
    counts = kinds(folder)
    assert len(counts) == 40
    for count in counts.values():
        assert 1 <= count["full"] < count["wrong"]
        assert count["answer"] >= 2
        assert 7 <= count.total() <= 9


def test_the_rule_of_a_full_document_gives_the_gold_answer(folder: Path) -> None:
    full = {
        row["meta"]["operator"]: row["text"] for row in rows(folder, "corpus.jsonl") if row["meta"]["kind"] == "full"
    }
    for row in rows(folder, "dataset.jsonl"):
        a, name, b = operands(row["question"])
        assert str(by_hand(full[name], int(a), int(b))) == row["answer"]


def test_gold_documents_are_those_of_the_operator_that_let_it_be_answered(folder: Path) -> None:
    about = {row["id"]: row["meta"] for row in rows(folder, "corpus.jsonl")}
    grades = {"full": 3, "rule": 2, "steps": 1}
    for row in rows(folder, "dataset.jsonl"):
        _, name, _ = operands(row["question"])
        wanted = {
            key: grades[meta["kind"]]
            for key, meta in about.items()
            if meta["operator"] == name and meta["kind"] in grades
        }
        assert row["gold_documents"] == wanted
        assert sorted(wanted.values())[-2:] == [2, 3]


def test_the_files_are_read_as_a_corpus_and_a_dataset_with_gold_documents(folder: Path) -> None:
    corpus = [read_corpus_line(raw, source, line) for source, line, raw in corpus_lines(folder / "corpus.jsonl")]
    items = list(read_dataset(dataset_lines(folder / "dataset.jsonl")))
    assert len(items) == 100
    known = {record.external_id for record in corpus}
    assert all(item.gold_documents and item.gold_documents.keys() <= known for item in items)


def test_no_document_answers_a_question_outright(folder: Path) -> None:
    solved = {operands(row["problem"]) for row in rows(folder, "corpus.jsonl")}
    assert not solved & {operands(row["question"]) for row in rows(folder, "dataset.jsonl")}


def test_only_test_names_and_phrasings_occur(folder: Path) -> None:
    shapes = {template.format(a="0", b="0", name="NAME") for template in TEST_TEMPLATES}
    texts = [row["problem"] for row in rows(folder, "corpus.jsonl")]
    texts += [row["question"] for row in rows(folder, "dataset.jsonl")]
    for text in texts:
        _, name, _ = operands(text)
        assert name in TEST_NAMES
        assert re.sub(r"\d", "0", text.replace(name, "NAME")) in shapes


def test_rows_have_the_promised_fields(folder: Path) -> None:
    corpus, dataset = rows(folder, "corpus.jsonl"), rows(folder, "dataset.jsonl")
    for part in (corpus, dataset):
        assert len({row["id"] for row in part}) == len(part)
    assert all(row.keys() == {"id", "problem", "text", "meta"} for row in corpus)
    assert all(row.keys() == {"id", "question", "answer", "subject", "level", "gold_documents"} for row in dataset)
    assert all(re.fullmatch(r"\d", row["answer"]) for row in dataset)
    assert all(re.fullmatch(r"Level [1-5]", row["level"]) for row in dataset)
    assert {row["subject"] for row in dataset} == {"operators"}


def test_items_per_operator_vary(folder: Path) -> None:
    counts = Counter(operands(row["question"])[1] for row in rows(folder, "dataset.jsonl"))
    assert counts.total() == 100
    assert len(counts) == 40
    assert len(set(counts.values())) > 1


def test_impossible_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="1 operators allow 91 items at most"):
        build(1, Setting(operators=1, items=92))
    assert len(build(1, Setting(operators=1, items=91)).items) == 91
