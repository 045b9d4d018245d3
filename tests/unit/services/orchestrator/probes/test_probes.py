"""Probes that need no server, each with what makes it fail, and the registry that they stand in."""

import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import httpx2
import pytest

from services.orchestrator import probes as probes_module
from services.orchestrator.probes import Probe, check, list_readiness_probes, probes
from shared import model_checks
from shared.check import Check, NotReady
from shared.settings import REPOSITORY, Device, Model, Settings

pytestmark = pytest.mark.anyio


def held(**settings: Any) -> Any:
    return SimpleNamespace(settings=Settings(**settings))


async def looked(model: Model) -> Check:
    settings = held(models={"m": model})
    return await check(probes_module.list_model_probes(settings.settings)[0], settings)


def test_every_probe_says_how_to_mend_what_it_finds() -> None:
    found = probes(Settings())
    assert all(probe.fix for probe in found)
    assert len({probe.name for probe in found}) == len(found)


def test_readiness_asks_the_cheap_ones_of_the_same_registry() -> None:
    cheap = list_readiness_probes(Settings())
    assert {probe.name for probe in cheap} < {probe.name for probe in probes(Settings())}
    assert not [probe.name for probe in cheap if probe.deep]


def test_every_driver_has_a_probe() -> None:
    assert set(model_checks.CHECKS) == set(get_args(Model.model_fields["driver"].annotation))


def test_every_probe_is_documented() -> None:
    text = (REPOSITORY / "docs" / "reference" / "troubleshooting.md").read_text("utf-8")
    section = text.partition("## Checks")[2].partition("\n## ")[0]
    documented = {
        name
        for line in section.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`([a-z ]+)`", line.split("|")[1])
    }
    assert {probe.name for probe in probes(Settings(models={}, roles={}))} <= documented


async def test_what_a_probe_raises_is_its_finding() -> None:
    async def fails(_: Any) -> str:
        raise NotReady("it is\nbroken")

    async def knows(_: Any) -> str:
        raise NotReady("it is", fix="do that")

    probe = Probe(name="p", run=fails, fix="do this")
    assert await check(probe, held()) == Check(name="p", ok=False, detail="it is", fix="do this")
    assert (await check(Probe(name="p", run=knows, fix="do this"), held())).fix == "do that"


async def test_a_silent_server_is_a_finding() -> None:
    async def silent(_: Any) -> str:
        raise TimeoutError

    assert (await check(Probe(name="p", run=silent, fix="f"), held())).detail == "TimeoutError"


async def test_a_model_file_must_be_there_and_be_one(tmp_path: Path) -> None:
    shipped = REPOSITORY / "models" / "world-judge-f16.gguf"
    assert (await looked(Model(driver="process", path=shipped))).ok
    (tmp_path / "m.gguf").write_bytes(b"version https://git-lfs")
    assert "not a GGUF file" in (await looked(Model(driver="process", path=tmp_path / "m.gguf"))).detail
    missing = await looked(Model(driver="process", path=tmp_path / "no.gguf"))
    assert ("no.gguf" in missing.detail, "models.m" in missing.fix) == (True, True)
    assert "needs a `path`" in (await looked(Model(driver="process"))).detail
    assert (await looked(Model(driver="scripted"))).ok


@pytest.mark.parametrize(("status", "ok"), [(200, True), (404, True), (401, False), (503, False)])
async def test_a_remote_model_is_asked_with_its_key(monkeypatch: pytest.MonkeyPatch, status: int, ok: bool) -> None:
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(status)

    client = httpx2.AsyncClient
    transport = httpx2.MockTransport(answer)
    monkeypatch.setattr(model_checks.httpx2, "AsyncClient", lambda **given: client(**given, transport=transport))
    monkeypatch.setenv("BIG_KEY", "secret")
    found = await looked(Model(driver="remote", url="https://m.example.org/v1", api_key_env="BIG_KEY"))
    assert found.ok is ok
    assert "secret" not in str(found)
    assert (str(asked[0].url), asked[0].headers["authorization"]) == (
        "https://m.example.org/v1/models",
        "Bearer secret",
    )


async def test_a_remote_model_needs_an_address_and_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BIG_KEY", raising=False)
    assert "needs a `url`" in (await looked(Model(driver="remote"))).detail
    unset = await looked(Model(driver="remote", url="https://m.example.org", api_key_env="BIG_KEY"))
    assert unset.fix == "export BIG_KEY=..."


async def test_a_model_that_could_never_be_loaded_is_found() -> None:
    assert "160 MiB" in await probes_module.check_budget(held())
    with pytest.raises(NotReady, match=r"world-judge \(96 MiB\)"):
        await probes_module.check_budget(held(device=Device(budget_mib=90)))


async def test_a_model_that_declares_nothing_is_found_by_its_file() -> None:
    path = REPOSITORY / "models" / "world-judge-f16.gguf"
    large = Model(driver="process", path=path, context=100_000, parallel=8)
    with pytest.raises(NotReady, match=r"large \(1\d\d\d MiB\)"):
        await probes_module.check_budget(held(models={"large": large}))
    assert "takes 0 MiB" in await probes_module.check_budget(
        held(models={"m": Model(driver="process", path=REPOSITORY / "LICENSE")})
    )


class Nvml:
    NVMLError = RuntimeError

    def __init__(self, mib: int = 24000, *, error: str = "") -> None:
        self.error = error
        self.nvmlShutdown = lambda: None
        self.nvmlSystemGetDriverVersion = lambda: "570.1"
        self.nvmlDeviceGetMemoryInfo = lambda _: SimpleNamespace(total=mib << 20, free=(mib - 1024) << 20)

    def nvmlInit(self) -> None:  # noqa: N802 - the library's name
        if self.error:
            raise RuntimeError(self.error)

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802 - the library's name
        if uuid != "GPU-1":
            raise RuntimeError("Not Found")
        return uuid


GPU = Device(id="GPU-1", budget_mib=12000)


@pytest.mark.parametrize(
    ("nvml", "gpu", "words"),
    [
        (Nvml(8000), GPU, "12000 MiB of budget and a reserve of 256 are 4256 MiB more than the 8000 MiB of GPU-1"),
        (Nvml(12100), GPU, "are 156 MiB more than the 12100 MiB"),
        (Nvml(), GPU.model_copy(update={"id": "GPU-2"}), "NVML: Not Found"),
        (Nvml(error="no driver"), GPU, "NVML: no driver"),
        (None, GPU, "not installed"),
    ],
)
async def test_a_gpu_that_is_measured_needs_its_driver_and_room_for_budget_and_reserve(
    monkeypatch: pytest.MonkeyPatch, nvml: Nvml | None, gpu: Device, words: str
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    with pytest.raises(NotReady, match=words):
        await probes_module.check_driver(held(device=gpu))


async def test_a_gpu_with_room_says_what_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml(12256))
    assert await probes_module.check_driver(held(device=GPU)) == "driver 570.1; 11232 of 12256 MiB free"


@pytest.mark.parametrize("declared", [Device(), GPU.model_copy(update={"memory": "declared"})])
async def test_memory_that_is_declared_needs_no_driver(monkeypatch: pytest.MonkeyPatch, declared: Device) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "declared" in await probes_module.check_driver(held(device=declared))


async def test_a_full_disk_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert str(tmp_path) in await probes_module.check_disk(held(data_dir=tmp_path / "not" / "yet"))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with pytest.raises(NotReady, match=r"0\.0 GiB free"):
        await probes_module.check_disk(held(data_dir=tmp_path))
