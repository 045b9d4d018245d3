import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from anyio import to_thread
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.errors import Unavailable
from shared.models import servers
from shared.models.embedding import ModelFailed
from shared.models.servers import MAX_ATTEMPTS, Endpoint, ModelReranker, read_key, sigmoid
from shared.replies import FailureKind
from shared.settings import Reranker
from tests.doubles.chat_server import Reply, Seen, as_json, chat_server
from tests.doubles.retrieval_server import RetrievalServer

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
async def test_logits_without_an_activation_are_refused_with_the_fix(reranking: RerankerSetting, document: str, said: str) -> None:
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
    assert 0 <= sigmoid(logit) <= 1
    assert (sigmoid(logit) >= 0.5) == (logit >= 0 or sigmoid(logit) == 0.5)


@given(st.floats(-700, 700))
def test_the_sigmoid_is_symmetric(logit: float) -> None:
    assert sigmoid(logit) + sigmoid(-logit) == pytest.approx(1, abs=1e-12)
