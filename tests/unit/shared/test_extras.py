"""The command that installs an extra fits how this installation came about."""

import json
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from shared import installation


def installed_from(monkeypatch: pytest.MonkeyPatch, noted: str | None) -> None:
    known = SimpleNamespace(version="9.8.7", read_text=lambda name: noted if name == installation.ORIGIN else None)
    monkeypatch.setattr(installation, "distribution", lambda _: known)


def words(extra: str) -> list[str]:
    python, *rest = shlex.split(installation.install_command(extra))
    assert python == sys.executable
    return rest


def test_a_wheel_is_named_by_its_path_even_with_blanks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    wheel = tmp_path / "my files" / "mathrag_gate-9.8.7-py3-none-any.whl"
    wheel.parent.mkdir()
    wheel.touch()
    installed_from(monkeypatch, json.dumps({"url": wheel.as_uri(), "archive_info": {"hash": "sha256=00"}}))
    assert words("embedded") == ["-m", "pip", "install", f"{wheel}[embedded]"]


def test_a_clone_stays_one_that_is_edited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed_from(monkeypatch, json.dumps({"url": tmp_path.as_uri(), "dir_info": {"editable": True}}))
    assert words("report") == ["-m", "pip", "install", "--editable", f"{tmp_path}[report]"]


@pytest.mark.parametrize("noted", [None, json.dumps({"url": "file:///gone/mathrag_gate-9.8.7-py3-none-any.whl"})])
def test_a_wheel_that_is_not_here_is_named_as_it_is_called(monkeypatch: pytest.MonkeyPatch, noted: str | None) -> None:
    installed_from(monkeypatch, noted)
    assert words("server")[-1] == "mathrag_gate-9.8.7-py3-none-any.whl[server]"
