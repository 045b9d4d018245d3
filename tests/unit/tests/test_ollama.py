"""The double of Ollama misbehaves as it is told, and not otherwise: what fault tests take for granted."""

import json
from collections.abc import AsyncIterator
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
from tests.doubles.chat_server import ChatServer
from tests.doubles.gpu import Gpu
from tests.doubles.misbehaviour import PATH
from tests.doubles.ollama_server import Ollama, ollama_server

pytestmark = pytest.mark.anyio

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
