"""What the doctor says of a model that a program of this host serves."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from services.orchestrator import probes
from services.orchestrator.probes import check
from shared.check import Check
from shared.settings import Model, Settings

pytestmark = pytest.mark.anyio

SHA = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.gguf").write_bytes(b"GGUF weights")
    return tmp_path


async def looked(**fields: Any) -> Check:
    settings = Settings(models={"judge": Model(**({"driver": "process", "command": (sys.executable,)} | fields))})
    held: Any = SimpleNamespace(settings=settings)
    return await check(probes.list_model_probes(settings)[0], held)


VLLM = {"command": (sys.executable, "serve")}


@pytest.mark.parametrize("driver", [{"server": "vllm", **VLLM}, {"server": "tgi"}, {"driver": "vllm-sleep", **VLLM}])
async def test_a_program_and_a_folder_that_are_there_are_well(folder: Path, driver: dict[str, Any]) -> None:
    found = await looked(path=folder, **driver)
    assert (found.ok, found.detail) == (True, f"{sys.executable}; {folder}")


async def test_a_program_and_a_file_that_are_there_are_well(folder: Path) -> None:
    assert (await looked(server="llama.cpp", path=folder / "model.gguf")).detail == f"{sys.executable}; 0 MiB"
    assert "not a GGUF file" in (await looked(server="llama.cpp", path=folder / "config.json")).detail


async def test_a_program_that_is_not_installed_ends_with_the_fix() -> None:
    found = await looked(server="vllm", hub="Qwen/Q", command=("no-such-program", "serve"))
    assert (found.ok, found.detail) == (False, "no program 'no-such-program'")
    assert "`models.judge.command`" in found.fix


@pytest.mark.parametrize(
    ("fields", "said"),
    [({"revision": SHA}, "Qwen/Q 0123456789ab"), ({}, "Qwen/Q, not pinned: no `revision`")],
)
async def test_a_name_on_the_hub_is_well_and_said_to_be_pinned_or_not(fields: dict[str, str], said: str) -> None:
    found = await looked(server="tgi", hub="Qwen/Q", **fields)
    assert (found.ok, found.detail) == (True, f"{sys.executable}; {said}")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"server": "vllm", **VLLM}, "needs a `path` or a `hub`"),
        ({"server": "tgi", "hub": "Qwen/Q", "command": (sys.executable, "--port", "1")}, "must not hold --port"),
        ({"server": "vllm", "path": Path("/nowhere"), **VLLM}, "/nowhere holds no config.json"),
        ({"command": ()}, "driver `process` needs a `path`"),
    ],
)
async def test_settings_that_no_guard_could_work_with_are_said(fields: dict[str, Any], said: str) -> None:
    found = await looked(**fields)
    assert not found.ok
    assert said in found.detail
