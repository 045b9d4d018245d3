"""Tuning static embeddings: the questions' table learns, and nothing else changes."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from shared.models.embedding import FILES, QUERY_FILE, StaticEmbedder
from tests.unit.tools.embeddings import toy
from tools.embeddings import __main__ as command
from tools.embeddings.tuning import NumberedDocuments, StaticTuning, TuningOptions, read


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
    test = read(out.with_suffix(".test"), documents)
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
    assert (command._parser().parse_args(["pairs", "--out", "tuned"]).embeddings / "model.safetensors").is_file()
