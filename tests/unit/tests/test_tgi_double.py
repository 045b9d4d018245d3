"""The double of text-generation-inference, against the published description of its pages and errors.

No real one was ever run here.
"""

import json
from argparse import Namespace
from typing import Any

import pytest

from shared.calls import Decoding
from shared.models.chat import ChatFailed, ServerAway
from shared.models.openai_compatible import OpenAICompatible
from shared.replies import FailureKind
from shared.settings import REPOSITORY
from tests.doubles.chat_server import Reply, Seen, chat_server
from tests.doubles.tgi_server import TgiServer

pytestmark = pytest.mark.anyio

PUBLISHED: dict[str, Any] = json.loads((REPOSITORY / "tests" / "recorded" / "tgi-openapi.json").read_text())
KEY = {"authorization": "Bearer key"}
TYPES = {each["error_type"]: each for each in PUBLISHED["errors"]}


@pytest.fixture
def tgi(monkeypatch: pytest.MonkeyPatch) -> TgiServer:
    monkeypatch.setenv("API_KEY", "key")
    sizes = {"max_total_tokens": 64, "max_input_tokens": 63, "max_concurrent_requests": 4}
    return TgiServer(Namespace(weights="/models/q", revision=None, **sizes))


def asked(tgi: TgiServer, words: int = 3, **body: Any) -> Reply:
    said = {"messages": [{"role": "user", "content": "word " * words}], "max_tokens": 8, **body}
    return tgi._respond(Seen("POST", "/v1/chat/completions", KEY, json.dumps(said).encode()))


def test_its_info_has_the_published_fields(tgi: TgiServer) -> None:
    info = json.loads(tgi._respond(Seen("GET", "/info", {}, b"")).body)
    fields = PUBLISHED["Info"]
    assert set(fields["required"]) <= info.keys() <= {*fields["required"], *fields["optional"]}
    assert all(isinstance(info[name], int) for name in fields["integers"])
    assert info["model_sha"] is None  # of a folder, as its router asks the hub alone


@pytest.mark.parametrize("path", ["/health", "/info", "/v1/models", "/metrics", "/v1/chat/completions"])
def test_it_asks_for_the_key_where_the_router_does(tgi: TgiServer, path: str) -> None:
    reply = tgi._respond(Seen("GET", path, {}, b""))
    assert (reply.status == 401) is (path not in PUBLISHED["open"])
    assert reply.status != 401 or reply.body == b""


def test_it_refuses_in_the_published_words(tgi: TgiServer) -> None:
    refused = asked(tgi, 70)
    said = json.loads(refused.body)
    assert said["error"].startswith(
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 64. Given: 70"
    )
    assert (refused.status, said["error_type"]) == (TYPES["validation"]["status"], "validation")


@pytest.mark.parametrize("status", [424, 429, 500])
def test_its_other_errors_are_the_published_ones(tgi: TgiServer, status: int) -> None:
    tgi.wrong.left[str(status)] = 1
    reply = asked(tgi)
    assert {"status": reply.status, **json.loads(reply.body)} in PUBLISHED["errors"]


@pytest.mark.anyio
@pytest.mark.parametrize("each", PUBLISHED["errors"], ids=lambda each: each["error_type"])
async def test_each_published_error_is_read_as_what_it_is(each: dict[str, Any]) -> None:
    said = "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 64. Given: 70 `inputs` tokens"
    words = said if each["error_type"] == "validation" else each.get("error", "Template error: no such variable")
    body = json.dumps({"error": words, "error_type": each["error_type"]}).encode()
    async with chat_server(lambda _: Reply(each["status"], body, {"Content-Type": "application/json"})) as http:
        client = OpenAICompatible(http.url, model="m")
        with pytest.raises(ChatFailed) as caught:
            await client.complete("q", Decoding(max_tokens=4), 0)
        await client.close()
    wanted = FailureKind.CONTEXT_EXCEEDED if each["error_type"] == "validation" else None
    if each["error_type"] == "overloaded":
        assert isinstance(caught.value, ServerAway)
    else:
        assert caught.value.kind is (wanted or FailureKind.BACKEND_ERROR)
