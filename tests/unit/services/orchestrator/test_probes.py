import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import httpx2
import pytest

from mathrag.check import Check, NotReady
from services.orchestrator import probes as probes_module
from services.orchestrator.probes import Probe, check, list_readiness_probes, probes
from shared import model_checks
from shared.models import servers
from shared.settings import REPOSITORY, Device, Model, Settings
from tests.doubles import bert_file
from tests.doubles.chat_server import Reply, chat_server
from tests.doubles.ollama_server import ollama_server
from tests.doubles.retrieval_server import RetrievalServer

# Probes that need no server, each with what makes it fail, and the registry that they stand in.


pytestmark = pytest.mark.anyio


def held(**settings: Any) -> Any:
    return SimpleNamespace(settings=Settings(**settings))


async def look_at_model(model: Model, name: str = "m") -> Check:
    deps = held(models={name: model})
    return await check(probes_module.list_model_probes(deps.settings)[0], deps)


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
    assert (await look_at_model(Model(driver="process", path=shipped))).ok
    (tmp_path / "m.gguf").write_bytes(b"version https://git-lfs")
    assert "not a GGUF file" in (await look_at_model(Model(driver="process", path=tmp_path / "m.gguf"))).detail
    missing = await look_at_model(Model(driver="process", path=tmp_path / "no.gguf"))
    assert ("no.gguf" in missing.detail, "models.m" in missing.fix) == (True, True)
    assert "needs a `path`" in (await look_at_model(Model(driver="process"))).detail
    assert (await look_at_model(Model(driver="scripted"))).ok


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
    found = await look_at_model(Model(driver="remote", url="https://m.example.org/v1", api_key_env="BIG_KEY"))
    assert found.ok is ok
    assert "secret" not in str(found)
    assert (str(asked[0].url), asked[0].headers["authorization"]) == (
        "https://m.example.org/v1/models",
        "Bearer secret",
    )


async def test_a_remote_model_needs_an_address_and_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BIG_KEY", raising=False)
    assert "needs a `url`" in (await look_at_model(Model(driver="remote"))).detail
    unset = await look_at_model(Model(driver="remote", url="https://m.example.org", api_key_env="BIG_KEY"))
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
        (Nvml(8000), GPU, r"12000 plus `reserve_mib` 256 is 4256 MiB more than GPU-1 has \(8000 MiB\)"),
        (Nvml(12100), GPU, r"is 156 MiB more than GPU-1 has \(12100 MiB\)"),
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
    with pytest.raises(NotReady, match=r"only 0\.0 GiB are free at .*; 1 GiB are needed"):
        await probes_module.check_disk(held(data_dir=tmp_path))


# What the doctor says of a model of an Ollama server, with the command that mends it; the server is a double.

TAG = "judge:0.5b"


async def look_at_ollama(url: str, driver: str = "ollama", **options: str) -> Check:
    return await look_at_model(Model(driver=driver, url=url, **options), TAG)  # type: ignore[arg-type]


async def test_a_pulled_model_is_well() -> None:
    async with ollama_server(TAG) as (double, http):
        found = await look_at_ollama(http.url)
    assert (found.ok, found.detail) == (True, f"Ollama 0.40.2; {TAG} {double.pulled[TAG][:12]}")


async def test_a_model_that_is_not_pulled_ends_with_its_pull() -> None:
    async with ollama_server(TAG) as (_, http):
        found = await look_at_ollama(http.url, tag="other:7b")
    here = http.url.removeprefix("http://")
    pull = f"OLLAMA_HOST={here} ollama pull other:7b"
    assert (found.ok, found.fix.partition("; ")[0]) == (False, pull)
    assert f"OLLAMA_HOST={here} ollama create other:7b" in found.fix
    assert "has no model 'other:7b'" in found.detail


async def test_a_server_that_is_not_there_ends_with_its_start() -> None:
    async with chat_server(lambda _: Reply()) as gone:
        pass
    found = await look_at_ollama(gone.url)
    assert (found.ok, found.fix) == (False, f"OLLAMA_HOST={gone.url.removeprefix('http://')} ollama serve")
    assert gone.url in found.detail


async def test_a_server_that_is_used_by_its_other_protocol_is_said() -> None:
    async with ollama_server(TAG) as (_, http):
        found = await look_at_ollama(f"{http.url}/v1", driver="remote")
    assert (found.ok, found.fix) == (False, f"`driver: ollama` with `url: {http.url}` for `models.{TAG}`")
    assert "silently truncates prompts" in found.detail


async def test_a_server_that_is_too_old_is_said() -> None:
    async with ollama_server(TAG) as (double, http):
        double.version = "0.11.10"
        found = await look_at_ollama(http.url)
    assert not found.ok
    assert "install 0.12.6 or newer" in found.detail


async def test_a_stranger_s_model_ends_with_the_command_that_stops_it() -> None:
    async with ollama_server(TAG) as (double, http):
        double.pull("other:7b")
        double.load("other:7b")
        found = await look_at_ollama(http.url)
    assert not found.ok
    assert "other:7b is loaded as well, and not by this guard" in found.detail
    assert found.fix.startswith(f"OLLAMA_HOST={http.url.removeprefix('http://')} ollama stop other:7b")


async def test_a_process_that_outlived_its_server_ends_with_its_kill(tmp_path: Path) -> None:
    runner = tmp_path / "llama-server"
    runner.symlink_to(sys.executable)
    command = [runner, "-c", "print(flush=True); input()", "/models/blobs/sha256-ab"]
    left = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: ASYNC220 - it only waits
    assert left.stdout is not None
    left.stdout.readline()  # for a moment after exec, its command line is empty
    try:
        async with ollama_server(TAG) as (_, http):
            found = await look_at_ollama(http.url)
    finally:
        left.communicate()
    assert not found.ok
    assert "holds a model for an Ollama server that has ended" in found.detail
    assert str(left.pid) in found.fix.removeprefix("kill ").split()


# What the doctor says of a model that a program of this host serves.

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.gguf").write_bytes(b"GGUF weights")
    return tmp_path


async def look_at_program(**fields: Any) -> Check:
    return await look_at_model(Model(**({"driver": "process", "command": (sys.executable,)} | fields)), "judge")


VLLM = {"command": (sys.executable, "serve")}


@pytest.mark.parametrize("driver", [{"server": "vllm", **VLLM}, {"server": "tgi"}, {"driver": "vllm-sleep", **VLLM}])
async def test_a_program_and_a_folder_that_are_there_are_well(folder: Path, driver: dict[str, Any]) -> None:
    found = await look_at_program(path=folder, **driver)
    assert (found.ok, found.detail) == (True, f"{sys.executable}; {folder}")


async def test_a_program_and_a_file_that_are_there_are_well(folder: Path) -> None:
    assert (await look_at_program(server="llama.cpp", path=folder / "model.gguf")).detail == f"{sys.executable}; 0 MiB"
    assert "not a GGUF file" in (await look_at_program(server="llama.cpp", path=folder / "config.json")).detail


async def test_a_program_that_is_not_installed_ends_with_the_fix() -> None:
    found = await look_at_program(server="vllm", hub="Qwen/Q", command=("no-such-program", "serve"))
    assert (found.ok, found.detail) == (False, "no program 'no-such-program'")
    assert "`models.judge.command`" in found.fix


@pytest.mark.parametrize(
    ("fields", "said"), [({"revision": SHA}, "Qwen/Q 0123456789ab"), ({}, "Qwen/Q, not pinned: no `revision`")]
)
async def test_a_name_on_the_hub_is_well_and_said_to_be_pinned_or_not(fields: dict[str, str], said: str) -> None:
    found = await look_at_program(server="tgi", hub="Qwen/Q", **fields)
    assert (found.ok, found.detail) == (True, f"{sys.executable}; {said}")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"server": "vllm", **VLLM}, "needs a `path` or a `hub`"),
        ({"server": "tgi", "hub": "Qwen/Q", "command": (sys.executable, "--port", "1")}, "must not contain --port"),
        ({"server": "vllm", "path": Path("/nowhere"), **VLLM}, "/nowhere holds no config.json"),
        ({"command": ()}, "driver `process` needs a `path`"),
    ],
)
async def test_settings_that_no_guard_could_work_with_are_said(fields: dict[str, Any], said: str) -> None:
    found = await look_at_program(**fields)
    assert not found.ok
    assert said in found.detail


# The doctor's look at embeddings, reranker and Elasticsearch: each with what makes it fail, and the fix.


async def look_at_retrieval(**given: Any) -> dict[str, Check]:
    deps = held(retrieval=given)
    return {probe.name: await check(probe, deps) for probe in probes_module.list_retrieval_probes(deps.settings)}


async def test_only_what_is_configured_is_looked_at() -> None:
    found = await look_at_retrieval()
    assert list(found) == ["embeddings"]
    assert found["embeddings"].ok
    assert "embeddings" not in {probe.name for probe in list_readiness_probes(Settings())}


async def test_servers_are_asked_for_a_letter() -> None:
    double = RetrievalServer(logits={"a": 0.0})
    async with chat_server(double.respond) as server:
        embeddings = {"kind": "openai", "url": server.url, "model": "small"}
        found = await look_at_retrieval(embeddings=embeddings, reranker={"kind": "endpoint", "url": server.url})
    assert all(each.ok for each in found.values())
    assert "small, 64 numbers" in found["embeddings"].detail


async def test_servers_that_do_not_work_say_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "PAUSE_S", 0.0)
    double = RetrievalServer(logits={"a": 8.5})
    double.tell("503")
    async with chat_server(double.respond) as server:
        embeddings = {"kind": "ollama", "url": server.url, "model": "small"}
        found = await look_at_retrieval(embeddings=embeddings, reranker={"kind": "endpoint", "url": server.url})
        assert "HTTP 503" in found["embeddings"].detail
        assert "HTTP 503" in found["reranker"].detail
        double.wrong.left.clear()
        found = await look_at_retrieval(reranker={"kind": "endpoint", "url": server.url, "activation": "none"})
    assert "activation: sigmoid" in found["reranker"].detail
    assert not found["reranker"].ok


async def test_files_are_looked_at_and_not_loaded(tmp_path: Path) -> None:
    encoder = bert_file.write(tmp_path / "encoder.gguf")
    found = await look_at_retrieval(
        embeddings={"kind": "gguf", "path": encoder}, reranker={"kind": "gguf", "path": tmp_path / "gone.gguf"}
    )
    assert found["embeddings"].ok
    assert "gone.gguf" in found["reranker"].detail
    assert "`path`" in found["reranker"].fix


async def test_a_key_that_is_not_set_is_named() -> None:
    embeddings = {"kind": "openai", "url": "http://127.0.0.1:1", "model": "m", "api_key_env": "NOT_SET_ANYWHERE"}
    found = await look_at_retrieval(embeddings=embeddings)
    assert found["embeddings"].fix.startswith("export NOT_SET_ANYWHERE=")


@pytest.mark.parametrize("backend", ["dense", "sparse"])
async def test_elasticsearch_is_asked_where_a_back_end_is_of_that_name(backend: str) -> None:
    settings = Settings(retrieval={backend: {"backend": "elasticsearch"}})  # type: ignore[arg-type]
    assert "elasticsearch" in {probe.name for probe in probes_module.list_retrieval_probes(settings)}


async def test_where_no_retriever_runs_its_program_looks_at_the_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "mathrag.yaml"
    file.write_text("retrieval: {sparse: {backend: elasticsearch}, elasticsearch: {url: 'http://127.0.0.1:9'}}")
    monkeypatch.setenv("MATHRAG_CONFIG", str(file))
    found = (await look_at_retrieval(sparse={"backend": "elasticsearch"}))["elasticsearch"]
    assert not found.ok
    assert "127.0.0.1:9 cannot be reached" in found.detail
    assert "retrieval.elasticsearch.url" in found.fix
