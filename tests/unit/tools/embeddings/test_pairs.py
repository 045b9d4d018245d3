"""Training pairs: read with their limits, questions kept together."""

from pathlib import Path

import numpy as np
import pytest

from tools.embeddings import tuning
from tools.embeddings.tuning import NumberedDocuments, TuningOptions, draw_batches, measure_recall

TWO_RULES = """\
{"query": "q", "rule": "r1", "positives": ["a", "b"], "negatives": ["x"]}
{"query": "q", "rule": "r2", "positives": ["c"]}
{"query": "other", "rule": "r1", "positives": ["x"]}
"""


def read(tmp_path: Path, text: str = TWO_RULES) -> tuple[list[tuning.TrainingQuery], list[str]]:
    (tmp_path / "pairs.jsonl").write_text(text)
    documents = NumberedDocuments()
    return tuning.read(tmp_path / "pairs.jsonl", documents), documents.texts


def test_documents_of_all_rules_of_a_question_are_its_oracle_documents(tmp_path: Path) -> None:
    (first, second, other), texts = read(tmp_path)
    named = [[texts[at] for at in numbers] for numbers in (first.positives, first.oracle, second.positives)]
    assert named == [["a", "b"], ["a", "b", "c"], ["c"]]
    assert (second.text, [texts[at] for at in other.oracle]) == ("q r2", ["x"])


def test_a_batch_holds_each_oracle_document_as_a_positive_once(tmp_path: Path) -> None:
    queries, texts = read(tmp_path)
    (batch,) = draw_batches(queries, TuningOptions(batch=8), np.random.default_rng(0))
    positives = [
        (at, texts[number]) for at, number in zip(batch.queries, batch.documents[batch.positives], strict=True)
    ]
    assert sorted(positives) == [(0, "a"), (0, "b"), (1, "c"), (2, "x")]
    assert sorted(texts[at] for at in batch.documents) == ["a", "b", "c", "x"]
    of_second = batch.oracle[batch.queries.index(1)]
    assert {texts[at] for at in batch.documents[of_second]} == {"a", "b", "c"}
    small = list(draw_batches(queries[:1], TuningOptions(batch=1, negatives=1), np.random.default_rng(0)))
    assert [{texts[at] for at in each.documents} for each in small] in (
        [{"a", "x"}, {"b", "x"}],
        [{"b", "x"}, {"a", "x"}],
    )


def test_a_question_is_on_one_side_of_the_split(tmp_path: Path) -> None:
    queries, _ = read(tmp_path, "".join(TWO_RULES.replace('"q"', f'"q{at}"') for at in range(20)))
    train, dev = tuning.split(queries, 0.25, 3)
    assert {each.question for each in train}.isdisjoint(each.question for each in dev)
    assert len({each.question for each in dev}) == 5
    assert [each.text for each in tuning.split(queries, 0.25, 3)[1]] == [each.text for each in dev]


def test_one_question_cannot_be_split(tmp_path: Path) -> None:
    queries, _ = read(tmp_path)
    with pytest.raises(SystemExit, match="of one question"):
        tuning.split(queries[:2], 0.5, 0)
    assert {len({each.question for each in part}) for part in tuning.split(queries, 0.99, 0)} == {1}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (TWO_RULES + "{}\n", r"pairs\.jsonl:4: .*query.*training-data"),
        ('{"query": "q", "rule": "r", "positives": []}\n', r"pairs\.jsonl:1: `positives` is empty"),
        ("nonsense\n", r"pairs\.jsonl:1: "),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SystemExit, match=said):
        read(tmp_path, text)


def test_a_file_beyond_the_limits_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MOST_LINES", 2)
    with pytest.raises(SystemExit, match="more than 2 lines"):
        read(tmp_path)
    monkeypatch.setattr(tuning, "MOST_LINES", 200)
    monkeypatch.setattr(tuning, "MOST_DOCUMENTS", 3)
    with pytest.raises(SystemExit, match="more than 3 different documents"):
        read(tmp_path)


def test_recall_counts_queries_with_an_oracle_document_among_the_first(tmp_path: Path) -> None:
    queries, texts = read(tmp_path)
    documents = np.ones((len(texts), 2), dtype=np.float32)
    vectors = np.ones((len(queries), 2), dtype=np.float32)
    assert texts == ["a", "b", "x", "c"]
    assert [measure_recall(vectors, documents, queries, first) for first in (1, 3, 4)] == [
        (2 / 3, 1 / 3), (1.0, 2 / 3), (1.0, 1.0),
    ]  # fmt: skip
    documents[0] = documents[1] = 0
    assert measure_recall(vectors[:1], documents, queries[:1], 1) == (0.0, 0.0)
