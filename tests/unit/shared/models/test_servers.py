"""Clients of servers for retrieval: rerankers, embedders, and the retriever."""

import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx2
import numpy as np
import pytest
from anyio import to_thread
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from pydantic import ValidationError

from mathrag.errors import TooLarge, Unavailable
from shared.models import servers
from shared.models.embedding import Embedder, ModelFailed, normalise_vectors
from shared.models.retriever_client import BUILD_S, NoReply, Orphans, RetrieverClient
from shared.models.servers import MAX_ATTEMPTS, Endpoint, ModelReranker, read_key
from shared.rag.fusion import logistic
from shared.replies import FailureKind, Retrieved, Scored
from shared.settings import Embeddings, Reranker, Retrieval, Settings
from tests.doubles.chat_server import Reply, Seen, as_json, chat_server
from tests.doubles.retrieval_server import RetrievalServer
from tests.unit.retrieval import TEXTS, HashedWords

# A server that is asked by worker threads: what is tried again, how long, and what a failure says.


pytestmark = pytest.mark.anyio

KEY = "sk-1234567890"


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses: list[float] = []

    def now(self) -> float:
        return self.seconds

    def pause(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.seconds += seconds


class Script:
    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.seen: list[Seen] = []

    def respond(self, seen: Seen) -> Reply:
        self.seen.append(seen)
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


GOOD = as_json({"a": 1})


async def asked(script: Script, clock: Clock | None = None, timeout_s: float = 60.0, key: str = "") -> dict[str, int]:
    clock = clock or Clock()
    async with chat_server(script.respond) as server:
        endpoint = Endpoint(server.url, key=key, timeout_s=timeout_s, pause=clock.pause, now=clock.now)
        try:
            return await to_thread.run_sync(endpoint.post, "/embed", {"x": 1}, dict[str, int])
        finally:
            endpoint.close()


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
async def test_a_refusal_that_may_pass_is_tried_again_after_growing_pauses(status: int) -> None:
    script, clock = Script(as_json({}, status), as_json({}, status), GOOD), Clock()
    assert await asked(script, clock) == {"a": 1}
    assert clock.pauses == [0.2, 0.4]


async def test_a_broken_connection_is_tried_again() -> None:
    script = Script(Reply(body=b'{"a"', missing=10, reset=True), GOOD)
    assert await asked(script) == {"a": 1}


async def test_the_last_of_a_few_tries_says_what_the_server_said() -> None:
    script = Script(as_json({"error": "overloaded"}, 503))
    with pytest.raises(ModelFailed, match=r"HTTP 503: .*overloaded") as caught:
        await asked(script)
    assert (caught.value.kind, caught.value.what[:14]) == (FailureKind.UNAVAILABLE, "the server at ")
    assert len(script.seen) == MAX_ATTEMPTS


async def test_all_tries_share_one_deadline() -> None:
    script, clock = Script(as_json({}, 503)), Clock()
    with pytest.raises(ModelFailed):
        await asked(script, clock, timeout_s=0.5)
    assert clock.pauses == [0.2]


@pytest.mark.parametrize("status", [400, 401, 404, 422])
async def test_other_refusals_are_final(status: int) -> None:
    script = Script(as_json({"error": "no"}, status), GOOD)
    with pytest.raises(ModelFailed, match=f"HTTP {status}"):
        await asked(script)
    assert len(script.seen) == 1


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"message": "input (900 tokens) is too large to process. increase the physical batch size"}},
        {"error": "`inputs` must have less than 512 tokens. Given: 900"},
        {"error": {"message": "This model's maximum context length is 512 tokens"}},
        {"error": "the input length exceeds the context length"},
    ],
)
@pytest.mark.parametrize("status", [400, 413, 500])
async def test_a_text_that_is_too_long_is_a_fact_about_the_text(body: dict[str, str], status: int) -> None:
    script = Script(as_json(body, status))
    with pytest.raises(ModelFailed) as caught:
        await asked(script)
    assert caught.value.kind is FailureKind.CONTEXT_EXCEEDED
    assert len(script.seen) == 1


async def test_a_server_that_hangs_is_left_after_the_time_limit() -> None:
    script = Script(Reply(hang=True))
    async with chat_server(script.respond) as server:
        endpoint = Endpoint(server.url, timeout_s=0.2, now=time.monotonic)
        with pytest.raises(ModelFailed, match=r"did not answer within 0\.2 s") as caught:
            await to_thread.run_sync(endpoint.post, "/embed", {}, dict[str, int])
        endpoint.close()
    assert caught.value.kind is FailureKind.TIMEOUT
    assert len(script.seen) == 1


async def test_nobody_there() -> None:
    endpoint = Endpoint("http://127.0.0.1:1", timeout_s=60, pause=lambda _: None)
    with pytest.raises(ModelFailed, match=r"127\.0\.0\.1:1/embed") as caught:
        endpoint.get("/embed", dict[str, int])
    assert (caught.value.kind, caught.value.what) == (FailureKind.UNAVAILABLE, "the server at 127.0.0.1:1")


@pytest.mark.parametrize("body", [b"<html>", b'{"a": "text"}', b'{"a": NaN}', b"\xff"])
async def test_an_answer_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(ModelFailed, match="cannot be read") as caught:
        await asked(Script(Reply(body=body)))
    assert caught.value.kind is FailureKind.BACKEND_ERROR


async def test_the_key_is_sent_and_never_said() -> None:
    script = Script(as_json({"error": f"invalid key {KEY}"}, 401))
    with pytest.raises(ModelFailed) as caught:
        await asked(script, key=KEY)
    assert script.seen[0].headers["authorization"] == f"Bearer {KEY}"
    assert KEY not in str(caught.value)


async def test_proxies_of_the_environment_see_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    assert await asked(Script(GOOD)) == {"a": 1}


@pytest.mark.parametrize("given", ["http://server", "http://server/", "http://server/v1", "http://server/v1/"])
def test_a_base_url_may_end_in_v1(given: str) -> None:
    assert Endpoint(given).url == "http://server"


def test_a_key_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBEDDING_KEY", KEY)
    assert read_key("EMBEDDING_KEY") == KEY
    assert read_key(None) == ""
    monkeypatch.delenv("EMBEDDING_KEY")
    with pytest.raises(Unavailable, match="EMBEDDING_KEY is not set") as caught:
        read_key("EMBEDDING_KEY")
    assert "export EMBEDDING_KEY" in str(caught.value.hint)


# Rerankers: two protocols, and probabilities of which the activation was applied exactly once.

LOGITS = {"exact": 8.5, "related": 2.1, "vague": -0.5, "unrelated": -2.3}
"""Document 003 of the sources, checked: reference values of the sigmoid beside it."""
PROBABILITIES = [0.9998, 0.8909, 0.3775, 0.0911]
PROTOCOL = Literal["jina", "tei"]
PROTOCOLS: tuple[PROTOCOL, ...] = ("jina", "tei")


@dataclass
class RerankerSetting:
    double: RetrievalServer
    url: str
    protocol: PROTOCOL

    async def score(self, documents: Sequence[str], **settings: Any) -> list[float]:
        chosen = Reranker(kind="endpoint", protocol=self.protocol, url=self.url, **settings)
        with servers.open_reranker(chosen) as made:
            assert made is not None
            return await to_thread.run_sync(made.score, "question", documents)


@pytest.fixture(params=PROTOCOLS)
async def reranking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RerankerSetting]:
    monkeypatch.setattr(servers, "PAUSE_S", 0.0)
    double = RetrievalServer(logits=LOGITS)
    async with chat_server(double.respond) as server:
        yield RerankerSetting(double, server.url, request.param)


async def test_logits_become_probabilities_in_the_order_asked(reranking: RerankerSetting) -> None:
    found = await reranking.score(["vague", "exact", "unrelated", "related"])
    assert found == pytest.approx([PROBABILITIES[at] for at in (2, 0, 3, 1)], abs=5e-5)


async def test_probabilities_are_left_as_they_are(reranking: RerankerSetting) -> None:
    reranking.double.logits = {"a": 0.25, "b": 1.0, "c": 0.0}
    assert await reranking.score(["a", "b", "c"], activation="none") == [0.25, 1.0, 0.0]


@pytest.mark.parametrize(("document", "said"), [("exact", "8.5"), ("vague", "-0.5")])
async def test_logits_without_an_activation_are_refused_with_the_fix(
    reranking: RerankerSetting, document: str, said: str
) -> None:
    with pytest.raises(ModelFailed, match=f"{said}, not a probability: set .*activation: sigmoid"):
        await reranking.score([document], activation="none")


async def test_raw_scores_are_asked_for_where_the_activation_is_ours() -> None:
    double = RetrievalServer(logits={"a": 0.5})
    async with chat_server(double.respond) as server:
        reranking = RerankerSetting(double, server.url, "tei")
        await reranking.score(["a"])
        await reranking.score(["a"], activation="none")
    assert [body["raw_scores"] for body in double.bodies] == [True, False]
    assert [body["truncate"] for body in double.bodies] == [False, False]


async def test_pairs_are_sent_in_batches(reranking: RerankerSetting) -> None:
    documents = list(LOGITS)
    assert await reranking.score(documents, batch=3) == pytest.approx(PROBABILITIES, abs=5e-5)
    field = "texts" if reranking.protocol == "tei" else "documents"
    assert [body[field] for body in reranking.double.bodies] == [documents[:3], documents[3:]]


async def test_documents_are_cut_where_the_operator_says_so(reranking: RerankerSetting) -> None:
    reranking.double.logits = {"circle": 0.0, "circle " * 900: 0.0}
    await reranking.score(["circle " * 900], max_chars=6)
    await reranking.score(["circle " * 900])
    sent = [body.get("texts") or body["documents"] for body in reranking.double.bodies]
    assert sent == [["circle"], ["circle " * 900]]


async def test_nothing_to_score(reranking: RerankerSetting) -> None:
    assert await reranking.score([]) == []
    assert reranking.double.bodies == []


@pytest.mark.parametrize("how", ["few", "twice"])
async def test_a_document_without_its_own_score_is_refused(reranking: RerankerSetting, how: str) -> None:
    reranking.double.tell(how)
    with pytest.raises(ModelFailed, match=r"gave [12] scores for 2 documents, or wrong indexes") as caught:
        await reranking.score(["exact", "vague"])
    assert caught.value.kind is FailureKind.BACKEND_ERROR


async def test_a_score_that_is_no_number_is_refused(reranking: RerankerSetting) -> None:
    reranking.double.tell("nan")
    with pytest.raises(ModelFailed, match="cannot be read"):
        await reranking.score(["exact", "vague"])


async def test_a_pair_that_does_not_fit_says_so(reranking: RerankerSetting) -> None:
    reranking.double.tell("too_long")
    with pytest.raises(ModelFailed) as caught:
        await reranking.score(["exact"])
    assert caught.value.kind is FailureKind.CONTEXT_EXCEEDED


@pytest.mark.parametrize(("how", "kind"), [("500", FailureKind.BACKEND_ERROR), ("reset", FailureKind.UNAVAILABLE)])
async def test_trouble_of_the_server_has_its_kind(reranking: RerankerSetting, how: str, kind: FailureKind) -> None:
    reranking.double.tell(how)
    with pytest.raises(ModelFailed) as caught:
        await reranking.score(["exact"])
    assert caught.value.kind is kind


async def test_a_server_that_is_late_has_timed_out(reranking: RerankerSetting) -> None:
    reranking.double.tell("hang")
    with pytest.raises(ModelFailed) as caught:
        await reranking.score(["exact"], timeout_s=0.1)
    assert caught.value.kind is FailureKind.TIMEOUT


def test_none_is_configured_by_default() -> None:
    with servers.open_reranker(Reranker()) as made:
        assert made is None


@pytest.mark.parametrize("given", [{"kind": "endpoint"}, {"kind": "gguf"}, {"kind": "sentence-transformers"}], ids=str)
def test_settings_of_a_reranker_that_cannot_work_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Reranker(**given)


class Fixed:
    def __init__(self, *scores: float) -> None:
        self.given = scores

    def scores(self, question: str, documents: Sequence[str]) -> Sequence[float]:
        return self.given

    def close(self) -> None:
        """Nothing."""


@pytest.mark.parametrize("scores", [(float("nan"),), (float("inf"),), (), (0.5, 0.5)], ids=str)
def test_scores_of_models_in_this_process_are_checked_too(scores: tuple[float, ...]) -> None:
    with pytest.raises(ModelFailed, match="the reranker gave"):
        ModelReranker(Fixed(*scores), Reranker()).score("question", ["document"])


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_the_sigmoid_is_a_probability_everywhere(logit: float) -> None:
    assert 0 <= logistic(logit) <= 1
    assert (logistic(logit) >= 0.5) == (logit >= 0 or logistic(logit) == 0.5)


@given(st.floats(-700, 700))
def test_the_sigmoid_is_symmetric(logit: float) -> None:
    assert logistic(logit) + logistic(-logit) == pytest.approx(1, abs=1e-12)


# Embedders behind HTTP: both protocols, and whatever a server sends that must not become an index.

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
    assert all(
        body.get("truncate") is (False if embedding.kind == "ollama" else None) for body in embedding.double.bodies
    )


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
async def test_of_a_very_long_text_little_is_sent_to_find_where_it_is_cut(
    embedding: EmbedderSetting, holds: int
) -> None:
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
async def test_whatever_changes_a_vector_changes_the_signature(
    embedding: EmbedderSetting, other: dict[str, Any]
) -> None:
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


# The retriever's client: how long it waits for what, and what it makes of a retriever that does not answer.

SETTINGS = Settings(
    retriever_url="http://retriever:8083", retrieval=Retrieval(timeout_s=7, reranker=Reranker(timeout_s=5, batch=4))
)
Handler = Callable[[httpx2.Request], httpx2.Response]


def client(handler: Handler) -> RetrieverClient:
    return RetrieverClient(httpx2.AsyncClient(transport=httpx2.MockTransport(handler)), SETTINGS)


async def refused(handler: Handler) -> NoReply:
    with pytest.raises(NoReply) as caught:
        await client(handler).search([{}])
    return caught.value


async def test_every_request_has_the_time_limit_of_its_work() -> None:
    limits: dict[tuple[str, str], Any] = {}
    replies: dict[str, Any] = {
        "/search": [{"type": "retrieved", "hits": []}] * 3,
        "/rerank": {"type": "scored", "scores": [0.5] * 9},
        "/indexes": {"corpus": 1, "indexes": []},
        "/orphans": {"orphans": ["one"], "deleted": True},
    }

    def answer(request: httpx2.Request) -> httpx2.Response:
        timeout = request.extensions["timeout"]
        assert len(set(timeout.values())) == 1
        limits[request.method, request.url.path] = timeout["read"]
        return httpx2.Response(200, json=replies[request.url.path])

    asked = client(answer)
    assert await asked.search([{}] * 3) == [Retrieved(hits=())] * 3
    assert await asked.rerank("hash", "What?", ["text"] * 9) == Scored(scores=(0.5,) * 9)
    assert (await asked.build_indexes(1)).corpus == 1
    await asked.list_orphans()
    assert await asked.delete_orphans() == Orphans(orphans=("one",), deleted=True)
    assert limits == {
        ("POST", "/search"): 7,
        ("POST", "/rerank"): 5 * (1 + 3),
        ("POST", "/indexes"): BUILD_S,
        ("GET", "/orphans"): BUILD_S,
        ("DELETE", "/orphans"): BUILD_S,
    }


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (httpx2.ConnectError("nobody"), FailureKind.CONNECTION),
        (httpx2.ReadTimeout("late"), FailureKind.TIMEOUT),
        (httpx2.ConnectTimeout("late"), FailureKind.TIMEOUT),
    ],
)
async def test_a_retriever_that_is_not_heard_of_has_no_status(error: Exception, kind: FailureKind) -> None:
    def answer(_: httpx2.Request) -> httpx2.Response:
        raise error

    found = await refused(answer)
    assert (found.kind, found.status, found.problem.detail) == (kind, None, "")


@pytest.mark.parametrize(
    ("status", "kind"),
    [(413, FailureKind.CONTEXT_EXCEEDED), (500, FailureKind.BACKEND_ERROR), (503, FailureKind.BACKEND_ERROR)],
)
async def test_what_the_retriever_says_is_read_from_its_problem(status: int, kind: FailureKind) -> None:
    problem = {"type": "unavailable", "detail": "away", "hint": "start it", "what": "Elasticsearch", "status": status}
    found = await refused(lambda _: httpx2.Response(status, json=problem))
    assert (found.kind, found.status) == (kind, status)
    said = found.problem
    assert (said.type, said.detail, said.hint, said.what) == ("unavailable", "away", "start it", "Elasticsearch")


@pytest.mark.parametrize("text", ["<html>Bad gateway</html>", "[]", ""])
async def test_what_another_answers_is_no_problem_of_the_retriever(text: str) -> None:
    found = await refused(lambda _: httpx2.Response(502, text=text))
    assert found.problem.detail == ""
    assert str(found) == f"HTTP 502: {text}"


@pytest.mark.parametrize("body", [b"nonsense", b"{}", b'[{"type": "scored", "scores": []}]'])
async def test_an_answer_that_is_none_is_trouble_of_the_retriever(body: bytes) -> None:
    found = await refused(lambda _: httpx2.Response(200, content=body))
    assert (found.kind, found.status) == (FailureKind.BACKEND_ERROR, None)


async def test_it_is_named_by_host_and_port() -> None:
    assert client(lambda _: httpx2.Response(500)).address == "retriever:8083"
