"""sentence-transformers in this process: tiny random models saved to disk; skipped without the extra `rerank`."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.errors import Unavailable
from shared.extras import install_command
from shared.models import embedding, servers
from shared.models.embedding import Embedder, ModelFailed
from shared.models.servers import sigmoid
from shared.settings import Embeddings, Reranker

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "circle", "radius", "area", "prime", "power", "the", "of", "a")
TEXTS = ["the area of a circle", "radius", "a prime", "the power of a prime"]


@pytest.fixture
def library() -> Any:
    return pytest.importorskip("sentence_transformers", reason="needs the extra `rerank`")


@pytest.fixture
def bert(library: Any, tmp_path: Path) -> Callable[[int], Path]:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")

    def written(labels: int) -> Path:
        torch.manual_seed(0)
        folder = tmp_path / f"bert-{labels}"
        (tmp_path / "vocab.txt").write_text("\n".join(WORDS))
        config = transformers.BertConfig(
            vocab_size=len(WORDS), hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
            max_position_embeddings=64, num_labels=labels,
        )  # fmt: skip
        transformers.BertForSequenceClassification(config).save_pretrained(folder)
        transformers.BertTokenizerFast(vocab=str(tmp_path / "vocab.txt")).save_pretrained(folder)
        return folder

    return written


def embedded(folder: Path, use: Callable[[Embedder], Any]) -> Any:
    with servers.open_embedder(Embeddings(kind="sentence-transformers", path=folder)) as made:
        return use(made)


def test_vectors_are_the_librarys(library: Any, bert: Callable[[int], Path]) -> None:
    folder = bert(1)
    found = embedded(folder, lambda made: made.embed_documents(TEXTS))
    expected = library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    signature = embedded(folder, lambda made: made.signature)
    (folder / "more.txt").write_text("another file")
    assert embedded(folder, lambda made: made.signature) != signature


def test_a_prompt_that_the_folder_brings_is_not_used(library: Any, bert: Callable[[int], Path]) -> None:
    plain, folder = bert(1), bert(2)
    library.SentenceTransformer(str(plain), device="cpu").save_pretrained(str(folder))
    config = json.loads((folder / "config_sentence_transformers.json").read_text())
    config |= {"prompts": {"query": "prime prime prime "}, "default_prompt_name": "query"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(config))
    found = embedded(folder, lambda made: made.embed_queries(TEXTS))
    np.testing.assert_allclose(found, embedded(plain, lambda made: made.embed_queries(TEXTS)), atol=1e-5)


@pytest.mark.parametrize("saved", ["torch.nn.modules.activation.Sigmoid", "torch.nn.modules.linear.Identity"])
def test_the_sigmoid_is_applied_once_whatever_the_folder_names(
    library: Any, bert: Callable[[int], Path], saved: str
) -> None:
    folder = bert(1)
    identity = pytest.importorskip("torch").nn.Identity()
    pairs = [("area of a circle", text) for text in TEXTS]
    logits = library.CrossEncoder(str(folder), device="cpu").predict(pairs, activation_fn=identity)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"sentence_transformers": {"activation_fn": saved}}))
    with servers.open_reranker(Reranker(kind="sentence-transformers", path=folder)) as made:
        assert made is not None
        assert made.score("area of a circle", TEXTS) == pytest.approx([sigmoid(float(each)) for each in logits])


def test_a_classifier_of_two_labels_is_no_reranker(bert: Callable[[int], Path]) -> None:
    settings = Reranker(kind="sentence-transformers", path=bert(2))
    with servers.open_reranker(settings) as made:
        assert made is not None
        with pytest.raises(ModelFailed, match="this one gives 2"):
            made.score("area", TEXTS)


def test_a_folder_that_holds_no_model_says_so(library: Any, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(Unavailable, match="sentence-transformers"):
        embedded(tmp_path, lambda made: made.embed_queries(["a"]))


def test_a_folder_that_is_not_there_is_named(library: Any, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="no model folder at"):
        embedded(tmp_path / "missing", lambda _: None)


def test_without_the_extra_the_command_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(embedding, "find_spec", lambda _: None)
    with pytest.raises(Unavailable, match="`sentence-transformers` of the extra `rerank` is not installed") as caught:
        embedded(tmp_path, lambda _: None)
    assert caught.value.hint == install_command("rerank")
    settings = Reranker(kind="sentence-transformers", model="any")
    with pytest.raises(Unavailable, match="is not installed"), servers.open_reranker(settings):
        pass
