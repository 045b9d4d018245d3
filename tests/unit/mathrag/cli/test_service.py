"""`mathrag service install`: the text of the unit, and what is refused."""

import json
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from mathrag.cli.output import Exit
from tests.unit.commands import mathrag


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("SUDO_USER", raising=False)
    return tmp_path


def print_unit(*options: str) -> str:
    ended = mathrag("service", "install", "--print", *options)
    assert ended.exit_code == 0, ended.stderr
    return ended.stdout


def parse_unit(text: str) -> RawConfigParser:
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def test_the_unit_runs_the_stack_in_the_foreground_and_stops_it_in_order(folder: Path) -> None:
    unit = parse_unit(print_unit("--data-dir", "data", "--port", "18241"))
    run = unit["Service"]
    assert run["ExecStart"] == (
        f'"{sys.executable}" "-m" "mathrag.cli.main" "up" "--data-dir" "{folder}/data" "--port" "18241"'
    )
    assert run["WorkingDirectory"] == str(folder)
    assert (run["KillMode"], run["OOMPolicy"], run["UMask"]) == ("mixed", "continue", "0077")
    assert (run["Restart"], run["RestartPreventExitStatus"]) == (
        "on-failure", f"{Exit.USAGE.value} {Exit.INVALID.value}",
    )  # fmt: skip
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_the_system_runs_the_stack_as_the_user_who_called_sudo(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "alice")
    assert parse_unit(print_unit())["Service"]["User"] == "alice"
    assert "User" not in parse_unit(print_unit("--user"))["Service"]


def test_a_unit_of_a_user_belongs_to_no_target_of_the_system(folder: Path) -> None:
    unit = print_unit("--user")
    assert parse_unit(unit)["Install"]["WantedBy"] == "default.target"
    assert "network-online" not in unit


def test_characters_that_systemd_replaces_are_written_so_that_it_does_not(folder: Path) -> None:
    run = parse_unit(print_unit("--data-dir", '50% "$HOME" \\n'))["Service"]
    assert f'"--data-dir" "{folder}/50%% \\"$$HOME\\" \\\\n"' in run["ExecStart"]


def test_a_folder_with_a_line_break_is_refused(folder: Path) -> None:
    ended = mathrag("service", "install", "--print", "--data-dir", "a\nExecStartPre=/bin/false")
    assert (ended.exit_code, "cannot hold" in ended.stderr, ended.stdout) == (Exit.INVALID, True, "")


def test_paths_of_the_configuration_are_in_the_unit_and_secrets_are_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MATHRAG_CONFIG", "other.yaml")
    monkeypatch.setenv("MATHRAG_SERVICE_KEY", "topsecret")
    ended = mathrag("service", "install", "--user")
    unit = (folder / "config" / "systemd" / "user" / "mathrag.service").read_text()
    assert f'Environment="MATHRAG_CONFIG={folder}/other.yaml"' in unit
    assert 'Environment="PATH=/usr/bin:/bin"' in unit
    assert "topsecret" not in unit + ended.output
    assert "does not set MATHRAG_SERVICE_KEY" in ended.stderr


def test_a_unit_is_written_once_and_replaced_only_when_that_is_asked_for(folder: Path) -> None:
    ended = mathrag("service", "install", "--user", "--json")
    written = Path(json.loads(ended.stdout)["unit"])
    assert written == folder / "config" / "systemd" / "user" / "mathrag.service"
    before = written.read_text()
    again = mathrag("service", "install", "--user", "--port", "9000")
    assert (again.exit_code, "--force" in again.stderr) == (Exit.CONFLICT, True)
    assert written.read_text() == before
    forced = mathrag("service", "install", "--user", "--port", "9000", "--force")
    assert "systemctl --user enable --now mathrag" in forced.stdout
    assert '"--port" "9000"' in written.read_text()


def test_systemd_accepts_the_unit(folder: Path) -> None:
    verifier = shutil.which("systemd-analyze")
    if verifier is None:
        pytest.skip("systemd-analyze is not installed")
    unit = folder / "mathrag.service"
    unit.write_text(print_unit("--data-dir", '50% "$HOME"'))
    done = subprocess.run([verifier, "verify", str(unit)], capture_output=True, text=True)
    if "Failed to initialize manager" in done.stderr:
        pytest.skip(f"systemd-analyze does not run here: {done.stderr}")
    assert (done.returncode, "mathrag.service" in done.stderr) == (0, False), done.stderr
