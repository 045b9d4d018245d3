"""Versions of installed programs: of a Python package from its metadata, of everything else from `--version`."""

from pathlib import Path

import pytest

from services.guard.drivers import launched
from services.guard.drivers.ports import DriverError
from shared.models.commands import TGI, VLLM

pytestmark = pytest.mark.anyio

FAILS = "#!{shebang}\nexit 1\n"
PRINTS = "#!/bin/sh\necho INFO: something else\necho {version}\n"


def script_of(folder: Path, said: str) -> Path:
    path = folder / "bin" / "vllm"
    path.parent.mkdir(exist_ok=True)
    path.write_text(said)
    path.chmod(0o700)
    return path


def packaged(folder: Path, version: str, python: str = "python3.12") -> None:
    info = folder / "lib" / python / "site-packages" / f"vllm-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n")


async def test_the_version_of_a_python_program_is_read_without_starting_it(tmp_path: Path) -> None:
    packaged(tmp_path, "0.32.0+cpu")
    script = script_of(tmp_path, FAILS.format(shebang=tmp_path / "bin" / "python"))
    assert await launched.find_version(script, VLLM) == "0.32.0+cpu"


async def test_a_link_to_a_python_program_has_its_version(tmp_path: Path) -> None:
    packaged(tmp_path, "0.32.0")
    link = tmp_path / "vllm"
    link.symlink_to(script_of(tmp_path, FAILS.format(shebang=tmp_path / "bin" / "python")))
    assert await launched.find_version(link, VLLM) == "0.32.0"


async def test_a_package_that_was_upgraded_has_its_new_version(tmp_path: Path) -> None:
    packaged(tmp_path, "0.31.0")
    script = script_of(tmp_path, FAILS.format(shebang=tmp_path / "bin" / "python"))
    await launched.find_version(script, VLLM)
    (tmp_path / "lib" / "python3.12").rename(tmp_path / "old")
    packaged(tmp_path, "0.32.0")
    assert await launched.find_version(script, VLLM) == "0.32.0"


async def test_a_script_around_a_program_is_asked(tmp_path: Path) -> None:
    packaged(tmp_path, "0.31.0")
    assert await launched.find_version(script_of(tmp_path, PRINTS.format(version="0.32.0")), VLLM) == "0.32.0"


async def test_a_program_is_asked_where_its_environment_holds_two_versions(tmp_path: Path) -> None:
    packaged(tmp_path, "0.31.0", "python3.11")
    packaged(tmp_path, "0.32.0", "python3.12")
    with pytest.raises(DriverError, match="prints no version but"):
        await launched.find_version(script_of(tmp_path, FAILS.format(shebang="/bin/sh -c : python")), VLLM)


async def test_a_program_is_asked_once_as_long_as_it_is_the_same_file(tmp_path: Path) -> None:
    script = script_of(tmp_path, f"#!/bin/sh\necho x >> {tmp_path}/asked\necho text-generation-launcher 3.3.6\n")
    assert [await launched.find_version(script, TGI) for _ in range(2)] == ["3.3.6", "3.3.6"]
    assert (tmp_path / "asked").read_text() == "x\n"


async def test_a_program_that_never_names_its_version_is_broken_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launched, "VERSION_ANSWER_S", 0.2)
    with pytest.raises(DriverError, match=r"vllm --version` does not answer within 0.2 s"):
        await launched.find_version(script_of(tmp_path, "#!/bin/sh\nexec sleep 600\n"), VLLM)
