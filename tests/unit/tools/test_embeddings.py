import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from shared.models.embedding import FILES, QUERY_FILE, StaticEmbedder
from tests.unit.tools import toy
from tools.embeddings import __main__ as command
from tools.embeddings import tuning
from tools.embeddings.tuning import (
    NumberedDocuments,
    StaticTuning,
    TuningOptions,
    compute_contrastive_loss,
    draw_batches,
    measure_recall,
)
from tools.embeddings.tuning import read as tuning_read

# The contrastive loss, against numbers that were worked out by hand.


SCORES = np.array([[2.0, 1.0, 0.0], [0.0, 1.0, 3.0], [1.0, 0.0, 1.0]])
"""Of three queries with three documents: with unit vectors as queries, the columns are the documents."""
QUERIES = np.eye(3)
DOCUMENTS = SCORES.T
POSITIVES = np.array([0, 1, 2])
OWN = np.eye(3, dtype=bool)


def test_the_loss_of_three_queries_is_the_one_worked_out_by_hand() -> None:
    losses, _ = compute_contrastive_loss(QUERIES, DOCUMENTS, POSITIVES, OWN, temperature=1.0)
    np.testing.assert_allclose(losses, [0.407606, 2.169846, 0.861995], atol=1e-6)


def test_another_oracle_document_of_the_query_is_no_negative() -> None:
    oracle = OWN.copy()
    oracle[1, 2] = True
    losses, gradients = compute_contrastive_loss(QUERIES, DOCUMENTS, POSITIVES, oracle, temperature=1.0)
    np.testing.assert_allclose(losses, [0.407606, 0.313262, 0.861995], atol=1e-6)
    np.testing.assert_allclose(gradients[1], 0.268941 * (DOCUMENTS[0] - DOCUMENTS[1]), atol=1e-6)


def test_each_oracle_document_is_a_positive_of_its_own() -> None:
    queries, oracle = np.tile(QUERIES[0], (2, 1)), np.array([[True, True, False]] * 2)
    losses, _ = compute_contrastive_loss(queries, DOCUMENTS, np.array([0, 1]), oracle, temperature=1.0)
    np.testing.assert_allclose(losses, np.log1p(np.exp([-2.0, -1.0])), atol=1e-12)


def test_scores_are_divided_by_the_temperature() -> None:
    losses, _ = compute_contrastive_loss(QUERIES, DOCUMENTS, POSITIVES, OWN, temperature=0.5)
    assert losses[0] == pytest.approx(np.log(1 + np.exp(-2) + np.exp(-4)))
    losses, gradients = compute_contrastive_loss(QUERIES, DOCUMENTS, POSITIVES, OWN)
    np.testing.assert_allclose(losses, [0, 200, np.log(2)], atol=1e-6)
    assert np.isfinite(gradients).all()


def test_the_gradient_is_that_of_finite_differences() -> None:
    rng = np.random.default_rng(0)
    queries, documents = rng.standard_normal((4, 5)), rng.standard_normal((6, 5))
    positives, oracle = np.array([0, 3, 3, 5]), rng.random((4, 6)) < 0.3
    oracle[np.arange(4), positives] = True
    _, gradients = compute_contrastive_loss(queries, documents, positives, oracle, 0.5)
    for place in np.ndindex(queries.shape):
        step = np.zeros_like(queries)
        step[place] = 1e-6
        above, below = (
            compute_contrastive_loss(queries + s, documents, positives, oracle, 0.5)[0].sum() for s in (step, -step)
        )
        assert gradients[place] == pytest.approx((above - below) / 2e-6, abs=1e-6)


# Training pairs: read with their limits, questions kept together.

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


# Tuning static embeddings: the questions' table learns, and nothing else changes.


@pytest.fixture
def embeddings(tmp_path: Path) -> Path:
    return toy.embeddings(tmp_path / "embeddings")


def tune(embeddings: Path, out: Path, *more: str) -> Path:
    training, test = toy.pairs(out.with_suffix(".train"), range(45)), toy.pairs(out.with_suffix(".test"), range(45, 60))
    options = ("--embeddings", embeddings, "--test", test, "--batch", 8, "--rate", 0.02, "--dev", 0.3, *more)
    command.main([str(training), "--out", str(out), *map(str, options)])
    return out


def test_oracle_documents_are_found_more_often(
    embeddings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tune(embeddings, tmp_path / "tuned")
    told = json.loads((out / "tuning.json").read_text())
    assert told["test"]["after"]["question"] >= told["test"]["before"]["question"] + 0.2
    assert told["epochs"][0]["loss"] is None
    printed = capsys.readouterr().out
    assert "before" in printed
    assert f"{told['test']['after']['question']:.3f}" in printed


def test_documents_keep_their_vectors_and_tokens_that_do_not_occur_theirs(embeddings: Path, tmp_path: Path) -> None:
    out = tune(embeddings, tmp_path / "tuned")
    assert all((out / name).read_bytes() == (embeddings / name).read_bytes() for name in FILES)
    before, after = StaticEmbedder(embeddings), StaticEmbedder(out)
    texts = ["p1 met p8", "visited leads to p3"]
    np.testing.assert_array_equal(before.embed_documents(texts), after.embed_documents(texts))
    assert (before.embed_queries(texts) != after.embed_queries(texts)).any()
    unseen = [before.token_ids([word])[0][0] for word in ("met", "p50")]
    np.testing.assert_allclose(after.query_table[unseen], before.query_table[unseen], atol=0.02)
    seen = before.token_ids(["p3"])[0]
    assert np.abs(after.query_table[seen] - before.query_table[seen]).max() > 0.05


def test_the_same_seed_gives_the_same_table(embeddings: Path, tmp_path: Path) -> None:
    first, second, third = (
        (tune(embeddings, tmp_path / name, "--seed", seed) / QUERY_FILE).read_bytes()
        for name, seed in (("a", "1"), ("b", "1"), ("c", "2"))
    )
    assert first == second != third
    tensors = load_file(tmp_path / "a" / QUERY_FILE)
    assert {name: tensor.dtype for name, tensor in tensors.items()} == {"embeddings": np.int8, "weights": np.float32}


def test_tuning_goes_on_from_a_tuned_folder(embeddings: Path, tmp_path: Path) -> None:
    out = tune(embeddings, tmp_path / "tuned")
    documents = NumberedDocuments()
    test = tuning_read(out.with_suffix(".test"), documents)
    tuning = StaticTuning(out, documents.texts, TuningOptions())
    assert tuning.measure(test) == tuning.measure(test, out) > tuning.measure(test, embeddings)


def test_what_does_not_help_is_not_written(embeddings: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="try another --rate"):
        tune(embeddings, tmp_path / "tuned", "--rate", "1e-9", "--epochs", "1")
    assert not (tmp_path / "tuned").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--batch", "0"), "a whole number from 1"),
        (("--rate", "nan"), "a number above 0"),
        (("--dev", "1"), "a number above 0 and below 1"),
        (("--kind", "sentence-transformers"), "--model must name"),
        (("--kind", "sentence-transformers", "--model", "nowhere"), "--model must name"),
        (("--embeddings", "nowhere"), "lack config.json"),
        (("--seed", "-1"), "a whole number, 0 or more"),
        (("--test", "nowhere.jsonl"), "nowhere.jsonl: No such file"),
        (("--documents", "nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_options_that_cannot_be_used_are_named(
    embeddings: Path, tmp_path: Path, options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        tune(embeddings, tmp_path / "tuned", *options)
    assert said in f"{caught.value}{capsys.readouterr().err}"


def test_a_folder_that_is_there_is_not_written_to(embeddings: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="already exists"):
        command.main([str(toy.pairs(tmp_path / "p")), "--out", str(embeddings)])


def test_the_shipped_embeddings_are_found_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (command.parse_arguments(["pairs", "--out", "tuned"]).embeddings / "model.safetensors").is_file()
