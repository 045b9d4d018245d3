"""The double of Ollama misbehaves as it is told, answers as the real server did, and `make real` finds a real one."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from shared.calls import Decoding, ModelAnswer
from shared.models.chat import ChatFailed
from shared.models.ollama import Ollama as Client
from shared.models.ollama import RunnerDied
from shared.replies import FailureKind
from shared.settings import REPOSITORY
from tests.doubles.chat_server import ChatServer, Reply, Seen
from tests.doubles.gpu import Gpu
from tests.doubles.misbehaviour import PATH
from tests.doubles.model_server import program
from tests.doubles.ollama_server import Manifest, Ollama, ollama_server
from tests.real import ollama
from tests.real.environments import Lacking
from tests.real.ollama import FILES, JUDGE
from tests.real.ollama import Ollama as RealOllama
from tests.unit.cases import named
from tests.unit.tests.test_recorded_servers import form

pytestmark = pytest.mark.anyio

# The double of Ollama misbehaves as it is told, and not otherwise: what fault tests take for granted.

TAG = "judge:0.5b"
OPTIONS = {"num_ctx": 64, "num_batch": 64}


class Rig:
    def __init__(self, double: Ollama, http: ChatServer, gpu: Gpu, file: Path) -> None:
        self.double, self.http, self.gpu, self.file = double, http, gpu, file
        self.api = Client(http.url, OPTIONS)

    async def tell(self, how: str, status: int = 200, **more: object) -> Any:
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.post(self.http.url + PATH, json={"how": how, **more})
        assert answer.status_code == status
        return answer.json()

    async def ask(self, prompt: str = "2 + 2 =") -> ModelAnswer:
        return (await self.api.chat(TAG, prompt, Decoding(max_tokens=10), 0)).answer

    def held(self) -> list[float]:
        return [each["mib"] for each in json.loads(self.file.read_text())["held"].values() if "until" not in each]


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with ollama_server(TAG) as (double, http):
        double.gpu = Gpu(tmp_path / "gpu.json", "GPU-1")
        made = Rig(double, http, double.gpu, tmp_path / "gpu.json")
        await made.api.load(TAG)
        yield made
        await made.api.close()


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("500", FailureKind.BACKEND_ERROR),
        ("503", FailureKind.UNAVAILABLE),
        ("429", FailureKind.UNAVAILABLE),
        ("424", FailureKind.BACKEND_ERROR),
        ("reset", FailureKind.CONNECTION),
        ("half", FailureKind.BACKEND_ERROR),
    ],
)
async def test_an_answer_can_fail_in_every_way_so_often_and_no_more(rig: Rig, how: str, kind: FailureKind) -> None:
    told = await rig.tell(how, times=2)
    assert told["misbehaves"] == {how: 2}
    for _ in range(2):
        assert await rig.api.list_resident()
        with pytest.raises(ChatFailed) as caught:
            await rig.ask()
        assert caught.value.kind is kind
    assert (await rig.ask()).finish_reason == "stop"


@pytest.mark.parametrize("how", ["hang", "hang_after_headers"])
async def test_an_answer_can_be_waited_for_in_vain(rig: Rig, how: str) -> None:
    await rig.tell(how)
    with anyio.move_on_after(0.3):
        await rig.ask()
        raise AssertionError("it was answered")
    with anyio.fail_after(60):
        await rig.http.left.wait()
    await rig.tell("well")
    assert (await rig.ask()).finish_reason == "stop"


@pytest.mark.parametrize(
    ("how", "text", "ended"),
    [
        ("length", None, "length"),
        ("empty", "", "stop"),
        ("unreadable", "It depends.", "stop"),
        ("out_of_range", "[[9]]", "stop"),
    ],
)
async def test_an_answer_can_be_whole_and_wrong(rig: Rig, how: str, text: str | None, ended: str) -> None:
    await rig.tell(how)
    found = await rig.ask()
    assert found.finish_reason == ended
    assert text is None or found.text == text


async def test_a_prompt_can_be_cut_in_silence(rig: Rig) -> None:
    assert not await rig.api.truncates_prompts(TAG)
    await rig.tell("cut")
    assert (await rig.ask("a b c d")).prompt_tokens == 2
    assert await rig.api.truncates_prompts(TAG)


@pytest.mark.parametrize("how", ["out_of_memory", "die", "end"])
async def test_a_runner_can_die_under_a_call(rig: Rig, how: str) -> None:
    await rig.tell(how, times=1)
    with pytest.raises(RunnerDied) as caught:
        await rig.ask()
    assert caught.value.kind is FailureKind.CONNECTION
    assert await rig.api.list_resident()
    assert rig.double.loads == [TAG]
    assert (await rig.api.chat(TAG, "2 + 2 =", Decoding(max_tokens=10), 0)).load_s == 0.8
    assert rig.double.loads == [TAG, TAG]


async def test_what_is_kept_stays_on_the_gpu_listed_or_not(rig: Rig) -> None:
    for how, listed in (("keep", 1), ("keep_unlisted", 0)):
        await rig.tell(how)
        await rig.api.unload(TAG)
        assert len(await rig.api.list_resident()) == listed
        assert rig.held() == [400]
        await rig.tell("well")
        assert rig.held() == []
        await rig.api.load(TAG)
        assert rig.held() == [400]


async def test_what_is_let_go_shows_as_free_later(rig: Rig) -> None:
    rig.gpu.lag_s = 3600
    await rig.api.unload(TAG)
    assert not await rig.api.list_resident()
    assert rig.held() == []
    (left,) = json.loads(rig.file.read_text())["held"].values()
    assert left["mib"] == 400


async def test_models_change_under_the_guard_and_change_back(rig: Rig) -> None:
    digest = (await rig.api.require_pulled(TAG)).digest
    for how in ("digest", "spill", "shrink", "stranger"):
        await rig.tell(how)
    ours, theirs = await rig.api.list_resident()
    assert (await rig.api.require_pulled(TAG)).digest != digest
    assert (ours.digest, ours.size - ours.size_vram, ours.context_length) == (digest, 100 << 20, 32)
    assert theirs.name == "llama3:8b"
    await rig.tell("well")
    assert (await rig.api.require_pulled(TAG)).digest == digest
    assert [each.name for each in await rig.api.list_resident()] == [TAG]


async def test_a_load_can_hang(rig: Rig) -> None:
    await rig.tell("hang_on_load")
    assert (await rig.ask()).finish_reason == "stop"
    await rig.api.unload(TAG)
    await rig.api.list_resident()
    with anyio.move_on_after(0.3):
        await rig.api.load(TAG)
        raise AssertionError("it was loaded")


async def test_a_word_that_it_does_not_know_is_refused_with_those_that_it_does(rig: Rig) -> None:
    assert "keep_unlisted" in (await rig.tell("kepe", 400))["error"]
    async with httpx2.AsyncClient(trust_env=False) as client:
        found = (await client.get(f"{rig.http.url}/double")).json()
    assert found == {"misbehaves": {}, "loads": [TAG], "prompts": 0}


# The double of Ollama answers as the real server was recorded to: each exchange is replayed against it, in order.
#
# Compared are status, form, the words of errors, why an answer ended, and which manifest `/api/tags` and `/api/ps`
# name; texts, times and counts are the model's and the machine's.

RECORDED = REPOSITORY / "tests" / "recorded" / "ollama-0.33.0-rc2.jsonl"
HEAD, *EXCHANGES = [json.loads(line) for line in RECORDED.read_text().splitlines()]
FIRST = Manifest("generator", template="<|im_start|>user\n{{ .System }}{{ .Prompt }}<|im_end|>")
LISTS = ("/api/tags", "/api/ps")
LONG = "one two three four five six seven eight nine ten " * 3


def answer(prompt: str) -> str:
    return "8 " + "= " * 40 if "= = =" in prompt else LONG


def create_with_a_system_text(double: Ollama) -> None:
    double.create("generator:latest", system="You are a careful calculator that explains each step that it takes.")


def create_as_before(double: Ollama) -> None:
    double.put("generator:latest", FIRST)


def die_under_the_next(double: Ollama) -> None:
    double.wrong.left["die"] = 1


BEFORE: dict[str, Callable[[Ollama], None]] = {
    "tags, the tag was created again with another SYSTEM while loaded": create_with_a_system_text,
    "chat, back": create_as_before,
    "chat, created again": create_as_before,
    "chat, the runner is killed under it": die_under_the_next,
}
"""What was done on the real server before these exchanges."""


@pytest.fixture(scope="module")
def replies() -> dict[str, Reply]:
    double = Ollama(version="0.33.0-rc2", most=1, answer=answer)
    double.put("generator:latest", FIRST)
    double.put("judge:latest", Manifest("judge"))
    found = {}
    for exchange in EXCHANGES:
        BEFORE.get(exchange["name"], lambda _: None)(double)
        request = exchange["request"]
        body = json.dumps(request.get("body")).encode()
        found[exchange["name"]] = double.respond(Seen(request["method"], request["path"], {}, body))
    return found


def lines(reply: Reply) -> list[str]:
    return reply.body.decode().splitlines()


def kind(content_type: str | None) -> str | None:
    return content_type.partition(";")[0] if content_type else None


def words(document: dict[str, Any]) -> str:
    return re.sub(r"\d+", "N", document.get("error", ""))


def ended(document: dict[str, Any]) -> tuple[object, object]:
    return document.get("done"), document.get("done_reason")


def differences(exchange: dict[str, Any], reply: Reply) -> list[str]:
    recorded = exchange["response"]
    status, content_type = reply.status, kind(reply.headers.get("Content-Type"))
    found = [] if status == recorded["status"] else [f"status {status}, not {recorded['status']}"]
    if content_type != kind(recorded["content_type"]):
        found.append(f"type {content_type}, not {recorded['content_type']}")
    said, theirs = lines(reply), recorded["lines"]
    if content_type == "text/plain" or not (said and theirs):
        return found if said == theirs else [*found, f"lines {said}, not {theirs}"]
    ends = zip(said[:1] + said[-1:], theirs[:1] + theirs[-1:], strict=True)
    return [*found, *(f"{mine}, not {their}" for mine, their in ends if not alike(exchange["name"], mine, their))]


def alike(name: str, mine: str, theirs: str) -> bool:
    my, their = json.loads(mine), json.loads(theirs)
    if (words(my), ended(my)) != (words(their), ended(their)):
        return False
    return name == "show" or form(my) == form(their) or "logprobs" in their


def test_the_double_answers_as_the_server_did(replies: dict[str, Reply]) -> None:
    found = {each["name"]: named(differences, each, replies[each["name"]]) for each in EXCHANGES}
    assert {name: different for name, different in found.items() if different} == {}


def test_show_names_what_a_footprint_and_an_identity_follow_from(replies: dict[str, Reply]) -> None:
    recorded = next(each for each in EXCHANGES if each["name"] == "show")
    mine, theirs = json.loads(replies["show"].body), json.loads(recorded["response"]["lines"][0])
    assert mine.keys() == theirs.keys()
    assert form(mine["details"]) == form(theirs["details"])


def manifests(responses: dict[str, dict[str, Any]]) -> list[str]:
    letters: dict[str, str] = {}
    found = []
    for exchange in EXCHANGES:
        if exchange["request"]["path"] in LISTS:
            models = responses[exchange["name"]]["models"]
            digest = next((each["digest"] for each in models if each["name"] == "generator:latest"), None)
            found.append(letters.setdefault(digest, "abc"[len(letters)]) if digest else "-")
    return found


def test_lists_name_the_manifests_that_the_server_named(replies: dict[str, Reply]) -> None:
    looks = [each for each in EXCHANGES if each["request"]["path"] in LISTS]
    recorded = {each["name"]: json.loads(each["response"]["lines"][0]) for each in looks}
    mine = {name: json.loads(replies[name].body) for name in recorded}
    assert manifests(mine) == manifests(recorded)
    assert "b" in manifests(recorded)


def loads_and_prompts(responses: dict[str, list[str]]) -> dict[str, tuple[bool, bool]]:
    last = {name: json.loads(said[-1]) for name, said in responses.items()}
    figures = {name: each for name, each in last.items() if "load_duration" in each}
    first = figures["chat, first"]["prompt_eval_count"]
    return {
        name: (each["load_duration"] > 200_000_000, each["prompt_eval_count"] > first)
        for name, each in figures.items()
    }  # fmt: skip


def test_the_same_calls_wait_for_a_load_and_are_given_a_longer_prompt(replies: dict[str, Reply]) -> None:
    chats = [each for each in EXCHANGES if each["request"]["path"] == "/api/chat" and each["response"]["lines"]]
    recorded = loads_and_prompts({each["name"]: each["response"]["lines"] for each in chats})
    assert loads_and_prompts({each["name"]: lines(replies[each["name"]]) for each in chats}) == recorded
    assert recorded["chat, the same moment: more prompt tokens than before"] == (False, True)


def test_a_repetition_is_stopped_at_the_same_token(replies: dict[str, Reply]) -> None:
    name = "chat, a token 31 times: stopped, done false, no reason"
    recorded = next(each["response"]["lines"] for each in EXCHANGES if each["name"] == name)
    for said in (recorded, lines(replies[name])):
        tokens = [json.loads(line)["message"]["content"].strip() for line in said]
        assert len(set(tokens[-31:])) == 1
        assert tokens[-32] != tokens[-1]


def test_the_recording_says_what_was_recorded_and_when() -> None:
    assert HEAD["server"].startswith("Ollama 0.33.0-rc2")
    assert HEAD["recorded"] == "2026-11-22"


# Which server `make real` takes for Ollama, and that it leaves it as it was; the program is the double's.


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealOllama]:
    Path(program(tmp_path, "ollama_server")).rename(tmp_path / "ollama")
    monkeypatch.delenv("OLLAMA_HOST", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    server = ollama.found(tmp_path / "data")
    yield server
    server.stop()


def tags(server: RealOllama) -> set[str]:
    listed = httpx2.get(f"{server.url}/api/tags", trust_env=False).json()["models"]
    return {each["name"] for each in listed}


def test_an_ollama_that_is_installed_is_started_and_has_our_models_until_they_are_removed(started: RealOllama) -> None:
    for tag in FILES:
        started.create(tag)
    started.stop()
    started.start()
    assert tags(started) == set(FILES)
    started.remove()
    assert tags(started) == set()


@pytest.mark.parametrize("scheme", ["", "http://"])
def test_a_server_that_is_named_is_used_and_goes_on(
    scheme: str, started: RealOllama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_HOST", started.url.replace("http://", scheme))
    named = ollama.found(tmp_path)
    assert (named.url, named.program) == (started.url, None)
    named.stop()
    assert "which OLLAMA_HOST names" in named.version()


def test_a_server_that_holds_a_model_of_somebody_else_is_left_alone(
    started: RealOllama, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started.create(JUDGE)
    monkeypatch.setattr(ollama, "FILES", {})
    httpx2.post(f"{started.url}/api/chat", json={"model": JUDGE, "messages": []}, trust_env=False)
    monkeypatch.setenv("OLLAMA_HOST", started.url)
    with pytest.raises(Lacking, match=f"has loaded {JUDGE}"):
        ollama.found(tmp_path)


@pytest.mark.parametrize(
    ("named", "said"), [("", "OLLAMA_HOST names none"), ("127.0.0.1:1", "OLLAMA_HOST does not answer: 127.0.0.1:1")]
)
def test_where_there_is_none_it_is_said(named: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("OLLAMA_HOST", named)
    with pytest.raises(Lacking, match=f"no ollama is installed, and {said}"):
        ollama.found(tmp_path)
