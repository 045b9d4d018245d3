"""Ollama: the client of its native API, and runners that outlived it."""

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import psutil
import pytest

from shared.calls import Decoding
from shared.models import ollama
from shared.models.chat import OLLAMA, ChatFailed
from shared.models.ollama import Ollama, OllamaFailed, make_full_tag
from shared.models.ollama_orphans import find_orphans, find_runners, is_running
from shared.replies import FailureKind
from tests.doubles.chat_server import Reply, as_json, chat_server
from tests.doubles.ollama_server import DEATHS, ollama_server
from tests.doubles.ollama_server import Ollama as Double

pytestmark = pytest.mark.anyio

# The client of Ollama's native API against a double of the protocol: what it sends, and what it makes of answers.
#
# This proves that we speak the documented protocol; the server itself is not here.

TAG = "qwen2.5:0.5b"
OPTIONS = {"num_ctx": 64, "num_batch": 64}
DECODING = Decoding(temperature=0.25, max_tokens=10)


@pytest.fixture
async def server() -> AsyncIterator[tuple[Double, Ollama]]:
    async with ollama_server(TAG) as (double, http), Ollama(http.url, OPTIONS) as api:
        yield double, api


Server = tuple[Double, Ollama]


@pytest.mark.parametrize(
    ("name", "listed"),
    [
        ("qwen2.5", "qwen2.5:latest"),
        ("qwen2.5:0.5b", "qwen2.5:0.5b"),
        ("registry.example:5000/team/model", "registry.example:5000/team/model:latest"),
    ],
)
def test_a_name_without_a_tag_is_the_latest(name: str, listed: str) -> None:
    assert make_full_tag(name) == listed


async def test_a_pulled_model_is_known_by_its_manifest(server: Server) -> None:
    double, api = server
    first = await api.require_pulled(TAG)
    assert (first.digest, first.details.quantization_level) == (double.pulled[TAG], "Q4_K_M")
    double.pull(TAG, "v2")
    assert (await api.require_pulled(TAG)).digest != first.digest


async def test_a_model_that_is_not_there_comes_with_the_commands_that_fetch_or_create_it(server: Server) -> None:
    create = r"if it was made from a Modelfile: ollama create llama3\.2 -f Modelfile$"
    with pytest.raises(OllamaFailed, match=rf"'llama3\.2': ollama pull llama3\.2; {create}"):
        await server[1].require_pulled("llama3.2")


@pytest.mark.parametrize("version", ["0.12.6", "0.13.0-rc1", "0.40.2", "1.0"])
async def test_a_server_that_refuses_long_prompts_is_taken(server: Server, version: str) -> None:
    double, api = server
    double.version = version
    assert await api.require_version() == version


@pytest.mark.parametrize("version", ["0.12.5", "0.11.10", "0.0.0", "unknown"])
async def test_a_server_that_cuts_prompts_in_silence_is_refused(server: Server, version: str) -> None:
    double, api = server
    double.version = version
    with pytest.raises(OllamaFailed, match=r"silently truncates prompts.*0\.12\.6"):
        await api.require_version()


async def test_a_load_keeps_the_model_and_says_everything_that_a_call_says(server: Server) -> None:
    double, api = server
    await api.load(TAG)
    for temperature in (0.0, 0.7):
        await api.chat(TAG, "a prompt", Decoding(temperature=temperature, max_tokens=5), seed=3)
    load, *calls = double.bodies
    assert load["messages"] == []
    launch = {"keep_alive": ollama.KEEP_S, "shift": False, "truncate": False, "think": False}
    assert [body["stream"] for body in double.bodies] == [False, True, True]
    assert all(body | launch == body and body["options"] | OPTIONS == body["options"] for body in (load, *calls))
    assert double.loads == [TAG]
    (resident,) = await api.list_resident()
    assert (resident.digest, resident.context_length) == (double.pulled[TAG], 64)


async def test_a_call_says_how_to_decode(server: Server) -> None:
    double, api = server
    await api.load(TAG)
    reply = (await api.chat(TAG, "one two three", DECODING, seed=7)).answer
    decoding = {"temperature": 0.25, "num_predict": 10, "seed": 7}
    assert double.bodies[-1]["options"] == {**OPTIONS, **OLLAMA, **decoding}
    assert OLLAMA["repeat_penalty"] == 1.0
    assert double.bodies[-1]["messages"] == [{"role": "user", "content": "one two three"}]
    assert (reply.text, reply.finish_reason) == (double.answer("one two three"), "stop")
    assert (reply.prompt_tokens, reply.completion_tokens) == (3, 4)
    assert (reply.prompt_ms, reply.completion_ms) == (3.0, 2.5)


async def test_prompt_tokens_from_the_cache_are_known_only_where_the_server_reports_them(server: Server) -> None:
    double, api = server
    await api.load(TAG)
    double.chat = [{"prompt_eval_cached_count": 2}, {"prompt_eval_cached_count": 0}, {}]
    replies = [(await api.chat(TAG, "one two three", DECODING, 0)).answer for _ in range(3)]
    assert [(reply.prompt_tokens, reply.cached_tokens) for reply in replies] == [(3, 2), (3, 0), (3, None)]


async def test_an_answer_at_its_limit_and_an_empty_one_are_answers(server: Server) -> None:
    double, api = server
    await api.load(TAG)
    double.chat = [{"done_reason": "length"}, {"message": {"role": "assistant", "content": ""}}]
    assert (await api.chat(TAG, "p", DECODING, 0)).answer.finish_reason == "length"
    empty = (await api.chat(TAG, "p", DECODING, 0)).answer
    assert (empty.text, empty.finish_reason) == ("", "stop")


async def test_a_server_that_counts_nothing_is_believed_to_have_counted_nothing(server: Server) -> None:
    double, api = server
    await api.load(TAG)
    double.chat = [as_json({"message": {"content": "x"}, "done": True, "done_reason": "stop"})]
    reply = (await api.chat(TAG, "p", DECODING, 0)).answer
    assert (reply.prompt_tokens, reply.completion_tokens, reply.prompt_ms) == (None, None, None)


REFUSED = Reply(status=400, body=b'{"error":"the input length exceeds the context length"}')


@pytest.mark.parametrize(
    ("instead", "kind"),
    [
        (REFUSED, FailureKind.CONTEXT_EXCEEDED),
        ({"prompt_eval_count": 256}, FailureKind.CONTEXT_EXCEEDED),
        (as_json({"error": "illegal base64 data"}, 400), FailureKind.BACKEND_ERROR),
        (as_json({"error": "model 'x' not found"}, 404), FailureKind.CONNECTION),
        (as_json({"error": "CUDA error: out of memory"}, 500), FailureKind.CONNECTION),
        (as_json({"error": DEATHS["die"]}, 500), FailureKind.CONNECTION),
        (as_json({"error": DEATHS["end"]}, 500), FailureKind.CONNECTION),
        (as_json({"error": "server busy, please try again"}, 503), FailureKind.UNAVAILABLE),
        (Reply(status=302, headers={"Location": "http://203.0.113.1/"}), FailureKind.BACKEND_ERROR),
        (Reply(body=b'{"message": {"content": "hal'), FailureKind.BACKEND_ERROR),
        (Reply(body=b"[]"), FailureKind.BACKEND_ERROR),
        ({"done_reason": ""}, FailureKind.BACKEND_ERROR),
        ({"done_reason": "unload"}, FailureKind.BACKEND_ERROR),
        (Reply(body=b'{"message":', missing=100, reset=True), FailureKind.CONNECTION),
    ],
    ids=[
        "refused", "cut in silence", "another 400", "gone", "out of memory", "runner died", "its server died",
        "busy", "redirect", "half", "no object", "broken off", "unloaded", "reset",
    ],
)  # fmt: skip
async def test_what_is_no_answer_is_a_typed_failure(server: Server, instead: object, kind: FailureKind) -> None:
    double, api = server
    await api.load(TAG)
    double.chat = [instead]  # type: ignore[list-item]
    with pytest.raises(ChatFailed) as caught:
        await api.chat(TAG, "p", DECODING, 0)
    assert caught.value.kind is kind


async def test_a_prompt_above_the_context_is_refused_whole(server: Server) -> None:
    api = server[1]
    await api.load(TAG)
    with pytest.raises(ChatFailed) as caught:
        await api.chat(TAG, "word " * 257, DECODING, 0)
    assert caught.value.kind is FailureKind.CONTEXT_EXCEEDED
    assert "exceed_context_size" in caught.value.detail


async def test_an_answer_says_how_long_its_call_waited_for_the_model(server: Server) -> None:
    double, api = server
    await api.load(TAG)
    assert (await api.chat(TAG, "p", DECODING, 0)).load_s < 0.01
    double.kill()
    assert (await api.chat(TAG, "p", DECODING, 0)).load_s == 0.8


async def test_the_file_of_the_weights_is_named_by_the_modelfile(server: Server) -> None:
    double, api = server
    assert await api.find_weights(TAG) == double.manifest(TAG).blob
    double.shown = {"modelfile": "FROM qwen2.5:0.5b"}
    assert await api.find_weights(TAG) is None


async def test_a_prompt_between_the_context_and_its_multiple_of_256_is_not_called_cut(server: Server) -> None:
    double, api = server
    await api.load(TAG)
    assert (await api.chat(TAG, "word " * 100, DECODING, 0)).answer.prompt_tokens == 100
    assert not await api.truncates_prompts(TAG)
    double.wrong.left["cut"] = None
    assert await api.truncates_prompts(TAG)


async def test_a_server_that_says_nothing_is_a_timeout(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    double, first = server
    monkeypatch.setattr(ollama, "QUERY_S", 0.05)
    double.chat = [Reply(hang=True)]
    await first.load(TAG)
    async with Ollama(first.url, OPTIONS, 0.05) as api:
        with pytest.raises(ChatFailed) as caught:
            await api.chat(TAG, "p", DECODING, 0)
    assert caught.value.kind is FailureKind.TIMEOUT
    async with chat_server(lambda _: Reply(hang=True)) as silent, Ollama(silent.url, OPTIONS) as api:
        with pytest.raises(OllamaFailed, match="does not answer") as failed:
            await api.list_resident()
        assert not failed.value.away


async def test_a_load_may_take_as_long_as_it_takes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    first = server[1]
    seen: list[object] = []
    request = first._client.request

    async def noted(*arguments: object, **options: object) -> object:
        seen.append(options["timeout"])
        return await request(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(first._client, "request", noted)
    await first.load(TAG)
    await first.unload(TAG)
    assert seen == [None, ollama.QUERY_S]


async def test_a_server_that_is_not_there_is_said_with_its_address() -> None:
    async with chat_server(lambda _: Reply()) as gone:
        pass
    async with Ollama(gone.url, OPTIONS) as api:
        with pytest.raises(OllamaFailed, match=rf"no Ollama at {gone.url}.*ollama serve") as failed:
            await api.require_version()
        assert failed.value.away
        with pytest.raises(ChatFailed) as caught:
            await api.chat(TAG, "p", DECODING, 0)
    assert caught.value.kind is FailureKind.CONNECTION


@pytest.mark.parametrize("body", [b"<html>", b'{"models": 3}', b'{"models": [{"size": 1}]}'])
async def test_an_address_of_something_else_is_said(body: bytes) -> None:
    async with chat_server(lambda _: Reply(body=body)) as other, Ollama(f"{other.url}/", {}) as api:
        with pytest.raises(OllamaFailed, match=f"{other.url}/api/ps does not answer like Ollama"):
            await api.list_resident()


async def test_an_unload_is_asked_for_without_a_message(server: Server) -> None:
    double, api = server
    await api.load(TAG)
    await api.unload(TAG)
    assert (double.bodies[-1]["messages"], double.bodies[-1]["keep_alive"]) == ([], 0)
    assert await api.list_resident() == ()
    await api.unload(TAG)
    with pytest.raises(OllamaFailed, match="HTTP 404"):
        await api.unload("nobody")


# Runners that outlived their Ollama are found among the processes of this host, and told from others.

SLEEP = "import time; print('running', flush=True); time.sleep(600)"
SERVE = "import json, os, subprocess; subprocess.run(json.loads(os.environ['RUNNER']))"
URL = "http://127.0.0.1:11434"
WEIGHTS = f"sha256-a{os.getpid():x}"
"""Of this process alone: runners are looked for among all processes of the host."""
BLOB = f"blobs/{WEIGHTS}"
Start = Callable[..., int]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Start]:
    """Starts a sleeping process under the name of a program, maybe as a child of another, and returns the pid of the
    first that was started; all are killed at the end."""
    running: list[psutil.Popen] = []

    def command(program: str, code: str) -> list[str]:
        link = tmp_path / program
        link.symlink_to(sys.executable)
        return [str(link), "-c", code]

    def start(program: str, *arguments: str, parent: str | None = None) -> int:
        runner = [*command(program, SLEEP), *arguments]
        first = command(parent, SERVE) if parent else runner
        process = psutil.Popen(first, stdout=subprocess.PIPE, env={**os.environ, "RUNNER": json.dumps(runner)})
        running.append(process)
        process.stdout.readline()  # for a moment after exec, its command line is empty
        return int(process.pid)

    yield start
    for process in running:
        for each in (*process.children(recursive=True), process):
            each.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("program", "arguments"),
    [("llama-server", ("--model", BLOB)), ("ollama", ("runner", BLOB)), (".ollama-wrapped", ("runner", BLOB))],
)
def test_a_runner_whose_server_is_gone_is_named_with_the_command_that_ends_it(
    started: Start, program: str, arguments: tuple[str, ...]
) -> None:
    pid = started(program, *arguments)
    ((found, said),) = find_orphans(URL)
    assert found == pid
    assert said.startswith(f"{program} (pid {pid}) of an Ollama that was killed still holds ")
    assert said.endswith(f": kill {pid}")


@pytest.mark.parametrize("server", ["ollama", ".ollama-wrapped", "..ollama-wrapped-wrapped"])
def test_a_runner_whose_server_lives_is_no_orphan(started: Start, server: str) -> None:
    started("llama-server", "--model", BLOB, parent=server)
    assert find_orphans(URL) == []


def test_a_runner_of_a_program_with_another_name_is_an_orphan(started: Start) -> None:
    started("llama-server", "--model", BLOB, parent="ollama-watch")
    assert len(find_orphans(URL)) == 1


def test_the_runner_of_a_loaded_model_is_found_until_it_ends(started: Start) -> None:
    server = started("llama-server", "--model", f"/blobs/{WEIGHTS}", parent="ollama")
    (runner,) = find_runners(URL, WEIGHTS)
    assert psutil.Process(server).children() == [runner]
    assert (find_runners(URL, "sha256-0000"), find_runners("http://gpu-box:11434", WEIGHTS)) == ([], [])
    assert is_running(runner)
    runner.kill()
    psutil.wait_procs([runner], timeout=60)
    assert not is_running(runner)
    assert find_runners(URL, WEIGHTS) == []


def test_an_orphan_is_no_runner_of_a_server(started: Start) -> None:
    started("llama-server", "--model", BLOB)
    assert find_runners(URL, WEIGHTS) == []


def test_a_model_server_of_somebody_else_is_none(started: Start) -> None:
    started("llama-server", "--model", "/models/mine.gguf")
    assert find_orphans(URL) == []


def test_those_of_a_server_elsewhere_cannot_be_seen(started: Start) -> None:
    started("llama-server", "--model", BLOB)
    assert find_orphans("http://gpu-box:11434") == []
