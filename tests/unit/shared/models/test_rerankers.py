"""Rerankers: two protocols, and probabilities of which the activation was applied exactly once."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pytest
from anyio import to_thread
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.models import servers
from shared.models.embedding import ModelFailed
from shared.models.servers import ModelReranker, sigmoid
from shared.replies import FailureKind
from shared.settings import Reranker
from tests.doubles.chat_server import chat_server
from tests.doubles.retrieval_server import RetrievalServer

pytestmark = pytest.mark.anyio

LOGITS = {"exact": 8.5, "related": 2.1, "vague": -0.5, "unrelated": -2.3}
"""Document 003 of the sources, checked: reference values of the sigmoid beside it."""
PROBABILITIES = [0.9998, 0.8909, 0.3775, 0.0911]
PROTOCOL = Literal["jina", "tei"]
PROTOCOLS: tuple[PROTOCOL, ...] = ("jina", "tei")


@dataclass
class Setting:
    double: RetrievalServer
    url: str
    protocol: PROTOCOL

    async def score(self, documents: Sequence[str], **settings: Any) -> list[float]:
        chosen = Reranker(kind="endpoint", protocol=self.protocol, url=self.url, **settings)
        with servers.open_reranker(chosen) as made:
            assert made is not None
            return await to_thread.run_sync(made.score, "question", documents)


@pytest.fixture(params=PROTOCOLS)
async def served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setting]:
    monkeypatch.setattr(servers, "PAUSE_S", 0.0)
    double = RetrievalServer(logits=LOGITS)
    async with chat_server(double.respond) as server:
        yield Setting(double, server.url, request.param)


async def test_logits_become_probabilities_in_the_order_asked(served: Setting) -> None:
    found = await served.score(["vague", "exact", "unrelated", "related"])
    assert found == pytest.approx([PROBABILITIES[at] for at in (2, 0, 3, 1)], abs=5e-5)


async def test_probabilities_are_left_as_they_are(served: Setting) -> None:
    served.double.logits = {"a": 0.25, "b": 1.0, "c": 0.0}
    assert await served.score(["a", "b", "c"], activation="none") == [0.25, 1.0, 0.0]


@pytest.mark.parametrize(("document", "said"), [("exact", "8.5"), ("vague", "-0.5")])
async def test_logits_without_an_activation_are_refused_with_the_fix(served: Setting, document: str, said: str) -> None:
    with pytest.raises(ModelFailed, match=f"{said}, not a probability: set .*activation: sigmoid"):
        await served.score([document], activation="none")


async def test_raw_scores_are_asked_for_where_the_activation_is_ours() -> None:
    double = RetrievalServer(logits={"a": 0.5})
    async with chat_server(double.respond) as server:
        served = Setting(double, server.url, "tei")
        await served.score(["a"])
        await served.score(["a"], activation="none")
    assert [body["raw_scores"] for body in double.bodies] == [True, False]
    assert [body["truncate"] for body in double.bodies] == [False, False]


async def test_pairs_are_sent_in_batches(served: Setting) -> None:
    documents = list(LOGITS)
    assert await served.score(documents, batch=3) == pytest.approx(PROBABILITIES, abs=5e-5)
    field = "texts" if served.protocol == "tei" else "documents"
    assert [body[field] for body in served.double.bodies] == [documents[:3], documents[3:]]


async def test_documents_are_cut_where_the_operator_says_so(served: Setting) -> None:
    served.double.logits = {"circle": 0.0, "circle " * 900: 0.0}
    await served.score(["circle " * 900], max_chars=6)
    await served.score(["circle " * 900])
    sent = [body.get("texts") or body["documents"] for body in served.double.bodies]
    assert sent == [["circle"], ["circle " * 900]]


async def test_nothing_to_score(served: Setting) -> None:
    assert await served.score([]) == []
    assert served.double.bodies == []


@pytest.mark.parametrize("how", ["few", "twice"])
async def test_a_document_without_its_own_score_is_refused(served: Setting, how: str) -> None:
    served.double.tell(how)
    with pytest.raises(ModelFailed, match=r"gave [12] scores for 2 documents, or wrong indexes") as caught:
        await served.score(["exact", "vague"])
    assert caught.value.kind is FailureKind.BACKEND_ERROR


async def test_a_score_that_is_no_number_is_refused(served: Setting) -> None:
    served.double.tell("nan")
    with pytest.raises(ModelFailed, match="cannot be read"):
        await served.score(["exact", "vague"])


async def test_a_pair_that_does_not_fit_says_so(served: Setting) -> None:
    served.double.tell("too_long")
    with pytest.raises(ModelFailed) as caught:
        await served.score(["exact"])
    assert caught.value.kind is FailureKind.CONTEXT_EXCEEDED


@pytest.mark.parametrize(("how", "kind"), [("500", FailureKind.BACKEND_ERROR), ("reset", FailureKind.UNAVAILABLE)])
async def test_trouble_of_the_server_has_its_kind(served: Setting, how: str, kind: FailureKind) -> None:
    served.double.tell(how)
    with pytest.raises(ModelFailed) as caught:
        await served.score(["exact"])
    assert caught.value.kind is kind


async def test_a_server_that_is_late_has_timed_out(served: Setting) -> None:
    served.double.tell("hang")
    with pytest.raises(ModelFailed) as caught:
        await served.score(["exact"], timeout_s=0.1)
    assert caught.value.kind is FailureKind.TIMEOUT


def test_none_is_configured_by_default() -> None:
    with servers.open_reranker(Reranker()) as made:
        assert made is None


@pytest.mark.parametrize("given", [{"kind": "endpoint"}, {"kind": "gguf"}, {"kind": "sentence-transformers"}], ids=str)
def test_settings_that_cannot_work_are_refused(given: dict[str, Any]) -> None:
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
