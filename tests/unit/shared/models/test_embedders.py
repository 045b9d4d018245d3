"""Embedders behind HTTP: both protocols, and whatever a server sends that must not become an index."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pytest
from anyio import to_thread
from numpy.typing import NDArray
from pydantic import ValidationError

from shared.errors import TooLarge, Unavailable
from shared.models import servers
from shared.models.embedding import Embedder, ModelFailed, normalise_vectors
from shared.settings import Embeddings
from tests.doubles.chat_server import chat_server
from tests.doubles.retrieval_server import RetrievalServer
from tests.unit.retrieval import TEXTS, HashedWords

pytestmark = pytest.mark.anyio

KIND = Literal["openai", "ollama"]
KINDS: tuple[KIND, ...] = ("openai", "ollama")


@dataclass
class EmbedderSetting:
    double: RetrievalServer
    url: str
    kind: KIND

    async def embed(self, texts: Sequence[str], side: str = "documents", **settings: Any) -> NDArray[np.float32]:
        return await self.using(lambda made: getattr(made, f"embed_{side}")(texts), **settings)

    async def using(self, use: Any, **settings: Any) -> Any:
        given = {"kind": self.kind, "url": self.url, "model": "small", **settings}
        with servers.open_embedder(Embeddings(**given)) as made:
            return await to_thread.run_sync(use, made)

    @property
    def sent(self) -> list[list[str]]:
        return [body["input"] for body in self.double.bodies if body["input"] != ["a"]]


@pytest.fixture(params=KINDS)
async def embedding(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[EmbedderSetting]:
    monkeypatch.setattr(servers, "PAUSE_S", 0.0)
    double = RetrievalServer(digests={"small:latest": "d1g3st"})
    async with chat_server(double.respond) as server:
        yield EmbedderSetting(double, server.url, request.param)


async def test_vectors_come_in_order_and_have_length_one(embedding: EmbedderSetting) -> None:
    found = await embedding.embed(TEXTS)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, HashedWords().embed_documents(TEXTS), atol=1e-6)


async def test_no_text_no_vector(embedding: EmbedderSetting) -> None:
    assert (await embedding.embed([])).shape == (0, 64)


async def test_a_text_without_words_stays_zero(embedding: EmbedderSetting) -> None:
    assert not (await embedding.embed(["+"])).any()


async def test_texts_are_sent_in_normal_form(embedding: EmbedderSetting) -> None:
    await embedding.embed(["３ circles, ﬁve"])
    assert embedding.sent == [["3 circles, five"]]


async def test_texts_are_sent_in_batches(embedding: EmbedderSetting) -> None:
    await embedding.embed(TEXTS, batch=4)
    assert embedding.sent == [TEXTS[:4], TEXTS[4:]]


async def test_each_side_has_its_prefix(embedding: EmbedderSetting) -> None:
    prefixes = {"query_prefix": "query: ", "document_prefix": "passage: "}
    await embedding.embed(["circle"], "queries", **prefixes)
    await embedding.embed(["circle"], "documents", **prefixes)
    assert embedding.sent == [["query: circle"], ["passage: circle"]]


async def test_texts_are_cut_where_the_operator_says_so_and_nowhere_else(embedding: EmbedderSetting) -> None:
    await embedding.embed(["circle " * 900], document_prefix="p: ", max_chars=6)
    await embedding.embed(["circle " * 900])
    assert embedding.sent == [["p: circle"], ["circle " * 900]]
    assert all(body.get("truncate") is (False if embedding.kind == "ollama" else None) for body in embedding.double.bodies)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("few", r"1 vectors for 2 texts|sent 1 vectors with wrong numbers"),
        ("another_dimension", "vectors of 63 numbers where 64 were expected"),
        ("ragged", "vectors of 63 and 64 numbers where 64 were expected"),
        ("nan", "cannot be read"),
        ("infinite", "cannot be read"),
        ("unreadable", "cannot be read"),
        ("half", "cannot be read"),
        ("424", "HTTP 424"),
    ],
)
async def test_what_are_no_vectors_is_refused_in_words(embedding: EmbedderSetting, how: str, said: str) -> None:
    def use(made: Embedder) -> None:
        assert made.dimension == 64
        embedding.double.tell(how)
        made.embed_documents(TEXTS[:2])

    with pytest.raises(Unavailable, match=said) as caught:
        await embedding.using(use)
    assert "retrieval.embeddings" in str(caught.value.hint)


async def test_two_vectors_of_one_number_are_refused() -> None:
    double = RetrievalServer()
    async with chat_server(double.respond) as server:

        def use(made: Embedder) -> None:
            assert made.dimension == 64
            double.tell("twice")
            made.embed_documents(TEXTS[:2])

        with pytest.raises(Unavailable, match="sent 2 vectors with wrong numbers for 2 texts"):
            await EmbedderSetting(double, server.url, "openai").using(use)


@pytest.mark.parametrize("how", ["500", "503", "429", "reset"])
async def test_a_server_that_stumbles_is_asked_again(embedding: EmbedderSetting, how: str) -> None:
    embedding.double.tell(how, 2)
    assert (await embedding.embed(TEXTS)).shape == (6, 64)


async def test_a_server_that_is_late_is_named_with_the_limit(embedding: EmbedderSetting) -> None:
    embedding.double.tell("hang")
    with pytest.raises(Unavailable, match=r"did not answer within 0\.1 s"):
        await embedding.embed(TEXTS, timeout_s=0.1)


async def test_a_text_that_does_not_fit_is_cut_where_the_setting_says_so(embedding: EmbedderSetting) -> None:
    embedding.double.holds = 5
    long = "circle radius area prime power derivative divisor " * 20
    found = await embedding.embed(["radius", long, "a prime"], too_long="cut")
    expected = HashedWords().embed_documents(["radius", " ".join(long.split()[:5]), "a prime"])
    np.testing.assert_allclose(found, expected, atol=1e-6)
    with pytest.raises(TooLarge, match="too long for the embedding model"):
        await embedding.embed([long])


@pytest.mark.parametrize("holds", [1, 255, 256, 257, 300, 512, 1999])
async def test_of_a_very_long_text_little_is_sent_to_find_where_it_is_cut(embedding: EmbedderSetting, holds: int) -> None:
    embedding.double.holds = holds
    words = [f"w{at}" for at in range(2000)]
    found = await embedding.embed([" ".join(words)], too_long="cut")
    np.testing.assert_allclose(found, HashedWords().embed_documents([" ".join(words[:holds])]), atol=1e-6)
    longest = max(len(text.split()) for [text] in embedding.sent[1:])
    assert longest <= max(2 * holds, 256)


@pytest.mark.parametrize("side", ["queries", "documents"])
async def test_a_text_that_does_not_fit_is_its_own_fault(embedding: EmbedderSetting, side: str) -> None:
    def use(made: Embedder) -> None:
        assert made.dimension == 64
        embedding.double.tell("too_long")
        getattr(made, f"embed_{side}")(["long"])

    with pytest.raises(TooLarge, match="too long for the embedding model") as caught:
        await embedding.using(use)
    assert "max_chars" in str(caught.value.hint)


async def test_a_server_that_comes_late_is_waited_for(embedding: EmbedderSetting) -> None:
    def use(made: Embedder) -> int:
        embedding.double.tell("424", 1)
        with pytest.raises(Unavailable, match="HTTP 424"):
            _ = made.dimension
        return made.dimension

    assert await embedding.using(use) == 64


async def test_the_dimension_is_asked_once(embedding: EmbedderSetting) -> None:
    def use(made: Embedder) -> None:
        made.embed_queries(["circle"])
        made.embed_documents(["circle"])
        assert made.signature

    await embedding.using(use)
    assert [body["input"] for body in embedding.double.bodies] == [["a"], ["circle"], ["circle"]]


async def signature(embedding: EmbedderSetting, **settings: Any) -> str:
    found: str = await embedding.using(lambda made: made.signature, **settings)
    return found


@pytest.mark.parametrize(
    "other",
    [{"query_prefix": "q: "}, {"document_prefix": "d: "}, {"max_chars": 100}, {"too_long": "cut"}],
    ids=lambda each: next(iter(each)),
)
async def test_whatever_changes_a_vector_changes_the_signature(embedding: EmbedderSetting, other: dict[str, Any]) -> None:
    assert await signature(embedding, **other) != await signature(embedding)


async def test_what_changes_no_vector_leaves_the_signature(embedding: EmbedderSetting) -> None:
    first = await signature(embedding)
    assert await signature(embedding, batch=3, cache=0, timeout_s=9) == first
    async with chat_server(embedding.double.respond) as moved:
        assert await signature(embedding, url=moved.url) == first


async def test_a_model_that_was_pulled_again_is_another_one() -> None:
    double = RetrievalServer(digests={"small:latest": "one"})
    async with chat_server(double.respond) as server:
        embedding = EmbedderSetting(double, server.url, "ollama")
        first = await signature(embedding)
        double.digests["small:latest"] = "two"
        assert await signature(embedding) != first


async def test_a_model_that_was_not_pulled_is_named_with_the_command() -> None:
    double = RetrievalServer()
    async with chat_server(double.respond) as server:
        with pytest.raises(Unavailable, match="ollama pull small"):
            await signature(EmbedderSetting(double, server.url, "ollama"))


async def test_a_declared_revision_tells_remote_models_apart() -> None:
    double = RetrievalServer()
    async with chat_server(double.respond) as server:
        embedding = EmbedderSetting(double, server.url, "openai")
        assert len({await signature(embedding, revision=each) for each in ("", "v1", "v2")}) == 3
        assert await signature(embedding, model="large") != await signature(embedding)


async def test_the_key_goes_out_and_into_no_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDDING_KEY", "sk-1234567890")
    double = RetrievalServer()
    double.tell("echo")
    async with chat_server(double.respond) as server:
        embedding = EmbedderSetting(double, server.url, "openai")
        with pytest.raises(Unavailable, match=r"no such key: Bearer \*\*\*"):
            await embedding.embed(TEXTS, api_key_env="EMBEDDING_KEY")
        assert server.seen[0].headers["authorization"] == "Bearer sk-1234567890"


def test_a_key_that_is_not_set_is_refused_at_the_start() -> None:
    settings = Embeddings(kind="openai", url="http://127.0.0.1:1", model="m", api_key_env="NOT_SET_ANYWHERE")
    with pytest.raises(Unavailable, match="NOT_SET_ANYWHERE"), servers.open_embedder(settings):
        pass


@pytest.mark.parametrize(
    "given",
    [
        {"kind": "openai", "model": "m"},
        {"kind": "ollama", "url": "http://127.0.0.1:1"},
        {"kind": "sentence-transformers", "path": None},
        {"kind": "static", "query_prefix": "query: "},
        {"kind": "openai", "model": "m", "url": "http://user:password@host"},
    ],
    ids=str,
)
def test_settings_of_an_embedder_that_cannot_work_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Embeddings(**given)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_none_are_refused(wrong: float) -> None:
    with pytest.raises(ModelFailed, match="NaN or infinity"):
        normalise_vectors([[1.0, wrong]], 1)


def test_empty_vectors_are_refused() -> None:
    with pytest.raises(ModelFailed, match="vectors of 0 numbers"):
        normalise_vectors([[], []], 2)


def test_long_vectors_keep_their_direction() -> None:
    np.testing.assert_allclose(normalise_vectors([[3e30, 4e30]], 1), [[0.6, 0.8]], rtol=1e-6)
