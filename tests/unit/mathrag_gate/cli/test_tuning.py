"""`mathrag model tune`: what is measured, shown and written."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from mathrag.cli.output import Exit
from mathrag.client.errors import Failed
from mathrag.errors import Invalid
from mathrag_gate.cli import tuning
from shared.models.tuning import SIZES
from tests.unit.commands import mathrag

FILE = """# mine
models:
  fake: {driver: scripted, parallel: 3, footprint_mib: 50}
  fixed: {driver: process, path: m.gguf, deterministic: true}
roles: {judge: fake, generate: fake}
"""


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    file = tmp_path / "mathrag.yaml"
    file.write_text(FILE)
    (tmp_path / "m.gguf").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MATHRAG_CONFIG", str(file))
    return file


def tune(folder: Path, *, write: bool, name: str = "fake") -> None:
    tuning.tune(name, write=write, data_dir=folder / "data", as_json=True, window_s=0.01)


def test_the_best_number_is_written_and_all_else_is_kept(
    settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune(tmp_path, write=True)
    found: Any = yaml.safe_load(capsys.readouterr().out)
    slots = [each["slots"] for each in found["measured"]]
    assert slots == list(SIZES[: len(slots)])
    assert found["chosen"] in slots
    assert (found["before"], found["file"]) == (3, str(settings))
    assert settings.read_text() == FILE.replace("parallel: 3", f"parallel: {found['chosen']}")


def test_a_dry_run_measures_and_writes_nothing(
    settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tune(tmp_path, write=False)
    found: Any = yaml.safe_load(capsys.readouterr().out)
    assert (found["file"], settings.read_text()) == (None, FILE)
    assert found["measured"]


def test_an_unknown_model_is_refused_with_the_names_of_others() -> None:
    refused = mathrag("model", "tune", "fak")
    assert refused.exit_code == Exit.NOT_FOUND
    assert "did you mean 'fake'" in refused.stderr


def test_settings_that_are_invalid_are_refused_before_anything_is_measured(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").unlink()
    with pytest.raises(Failed, match="does not exist"):
        tune(tmp_path, write=True)
    assert not (tmp_path / "data").exists()


def test_a_deterministic_model_of_llama_cpp_has_nothing_to_tune(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="has one slot"):
        tune(tmp_path, write=True, name="fixed")
