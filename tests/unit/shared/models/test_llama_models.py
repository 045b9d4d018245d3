"""GGUF models inside this process, by llama.cpp itself: a toy BERT written by the test, and the shipped judge."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from mathrag.errors import TooLarge, Unavailable
from shared.models import metadata, servers
from shared.models.embedding import Embedder, ModelFailed, RerankingModel
from shared.models.servers import LlamaCrossEncoder
from shared.rag.fusion import logistic
from shared.replies import FailureKind
from shared.settings import REPOSITORY, Embeddings
from shared.settings import Reranker as Reranking
from tests.doubles import bert_file

JUDGE = REPOSITORY / "models" / "world-judge-f16.gguf"
TEXTS = ["the area of a circle", "radius", "a prime is a prime", "the power of two"] * 5


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("gguf")
    bert_file.write(made / "encoder.gguf")
    bert_file.write(made / "reranker.gguf", head=True)
    return made


@pytest.fixture(scope="module")
def embedder(folder: Path) -> Iterator[Embedder]:
    with servers.open_embedder(Embeddings(kind="gguf", path=folder / "encoder.gguf", batch=7)) as made:
        yield made


@pytest.fixture(scope="module")
def reranker(folder: Path) -> Iterator[RerankingModel]:
    with servers.open_reranker(Reranking(kind="gguf", path=folder / "reranker.gguf", batch=3)) as made:
        assert made is not None
        yield made


def test_vectors_have_length_one_and_belong_to_their_texts(embedder: Embedder) -> None:
    found = embedder.embed_documents(TEXTS)
    assert found.shape == (20, bert_file.DIMENSION)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
    alone = np.concatenate([embedder.embed_queries([text]) for text in TEXTS[:4]])
    np.testing.assert_allclose(found, np.tile(alone, (5, 1)), atol=1e-5)
    assert len(np.unique(found.round(4), axis=0)) == 4


def test_several_threads_may_ask(embedder: Embedder) -> None:
    expected = embedder.embed_documents(TEXTS)
    with ThreadPoolExecutor(4) as threads:
        found = [threads.submit(embedder.embed_documents, TEXTS) for _ in range(8)]
        for each in found:
            np.testing.assert_allclose(each.result(), expected, atol=1e-5)


def test_a_text_that_does_not_fit_is_refused_and_the_next_is_answered(embedder: Embedder) -> None:
    fits = " ".join(["circle"] * (bert_file.CONTEXT - 2))
    assert embedder.embed_queries([fits]).any()
    with pytest.raises(TooLarge, match="too large to process"):
        embedder.embed_queries([f"{fits} circle"])
    assert embedder.embed_queries(["circle"]).any()


def test_texts_that_are_cut_fit(folder: Path) -> None:
    settings = Embeddings(kind="gguf", path=folder / "encoder.gguf", max_chars=200)
    with servers.open_embedder(settings) as made:
        assert made.embed_documents(["circle " * 900]).any()


def test_a_text_of_too_many_tokens_is_cut_by_the_models_own_count(folder: Path) -> None:
    fits = " ".join(["circle"] * (bert_file.CONTEXT - 2))
    path = folder / "encoder.gguf"
    with servers.open_embedder(Embeddings(kind="gguf", path=path, too_long="cut")) as made:
        short, full, cut = made.embed_documents(["radius", fits, f"{fits} {'power ' * 900}"])
        np.testing.assert_allclose(cut, full, atol=1e-4)
        assert abs(short - full).max() > 0.01
        signature = made.signature
    with servers.open_embedder(Embeddings(kind="gguf", path=path)) as refusing:
        assert refusing.signature != signature


def test_a_prefix_that_fills_the_model_leaves_nothing_to_cut(folder: Path) -> None:
    prefix = "circle " * bert_file.CONTEXT
    settings = Embeddings(kind="gguf", path=folder / "encoder.gguf", too_long="cut", document_prefix=prefix)
    with servers.open_embedder(settings) as made, pytest.raises(TooLarge, match="too large to process"):
        made.embed_documents(["radius"])


def test_the_signature_is_the_files(folder: Path, embedder: Embedder, tmp_path: Path) -> None:
    def signature(path: Path) -> str:
        with servers.open_embedder(Embeddings(kind="gguf", path=path, batch=7)) as made:
            return made.signature

    copy = tmp_path / "copy.gguf"
    copy.write_bytes((folder / "encoder.gguf").read_bytes())
    assert signature(copy) == embedder.signature
    assert signature(bert_file.write(tmp_path / "other.gguf", seed=1)) != embedder.signature


def test_a_model_that_names_no_pooling_is_averaged() -> None:
    assert metadata.read_pooling(JUDGE) is None
    with servers.open_embedder(Embeddings(kind="gguf", path=JUDGE)) as made:
        found = made.embed_documents(["What is 2+2?", "What is 2+3?"])
    assert found.shape == (2, 128)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


def test_the_header_names_the_pooling(folder: Path) -> None:
    assert metadata.read_pooling(folder / "encoder.gguf") == bert_file.FIRST_TOKEN
    own = metadata.read_tensor_names(folder / "reranker.gguf") - metadata.read_tensor_names(folder / "encoder.gguf")
    assert own == {"cls.weight", "cls.bias", "cls.output.weight", "cls.output.bias"}


def test_scores_are_probabilities_in_order(folder: Path, reranker: RerankingModel) -> None:
    made = LlamaCrossEncoder(folder / "reranker.gguf", threads=1)
    logits = made.scores("area of a circle", TEXTS[:4])
    made.close()
    found = reranker.score("area of a circle", TEXTS[:4])
    assert found == pytest.approx([logistic(logit) for logit in logits], abs=1e-5)
    assert len({round(score, 5) for score in found}) == 4
    assert reranker.score("area of a circle", TEXTS[3::-1]) == pytest.approx(found[::-1], abs=1e-5)


def test_a_pair_that_does_not_fit_is_refused(reranker: RerankingModel) -> None:
    with pytest.raises(ModelFailed) as caught:
        reranker.score("area", ["circle " * bert_file.CONTEXT])
    assert caught.value.kind is FailureKind.CONTEXT_EXCEEDED


def test_an_encoder_does_not_rerank(folder: Path) -> None:
    with pytest.raises(Unavailable, match=r"encoder\.gguf is not a reranker: it lacks cls\.output\.weight"):
        LlamaCrossEncoder(folder / "encoder.gguf", threads=1)


def test_probabilities_that_llama_cpp_makes_itself_get_no_logistic(tmp_path: Path) -> None:
    path = bert_file.write(tmp_path / "qwen.gguf", head=True, family="qwen3")
    with pytest.raises(Unavailable, match="already turns the scores") as caught:
        servers.open_reranker(Reranking(kind="gguf", path=path)).__enter__()
    assert "activation: none" in str(caught.value.hint)
    with servers.open_reranker(Reranking(kind="gguf", path=path, activation="none")) as made:
        assert made is not None


@pytest.mark.parametrize("content", [None, b"no GGUF at all"])
def test_a_file_that_is_none_is_refused_at_the_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(Unavailable, match=r"model\.gguf"), servers.open_embedder(Embeddings(kind="gguf", path=path)):
        pass


def test_a_file_that_is_broken_off_says_so_when_it_is_loaded(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes((folder / "encoder.gguf").read_bytes()[:-2000])
    with (
        servers.open_embedder(Embeddings(kind="gguf", path=path)) as made,
        pytest.raises(Unavailable, match=r"cannot load broken\.gguf"),
    ):
        made.embed_queries(["circle"])
