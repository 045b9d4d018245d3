"""Doubles of model servers answer as the real ones were seen to, and those that are given are asked the same.

The exchanges were recorded on real servers (`tests/recorded`: versions and dates are in their first lines) with the
model that this package ships. Compared are status, content type, fields, words of errors, and why an answer ended; not
compared are texts, times, ids and counts. To ask the real ones as well:

    LLAMA_SERVER=/path/to/llama-server pytest tests/unit/tests/test_recorded_servers.py
    VLLM=/path/to/vllm VLLM_MODEL=/path/to/the/model/as/folder pytest tests/unit/tests/test_recorded_servers.py
"""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from services.guard.drivers import launched
from services.guard.drivers.launched import ExternalProgramDriver
from shared.settings import REPOSITORY, Device, Model
from tests.doubles.model_server import program

pytestmark = pytest.mark.anyio

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
