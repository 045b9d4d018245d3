"""The data folder is found without checking all settings, and is the one that they name."""

import os
from itertools import product
from pathlib import Path

import pytest

from mathrag.client.address import configured_data_dir
from shared.errors import Unavailable
from shared.settings import load
from tests.unit.cases import named


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.upper().startswith("MATHRAG_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def folders(text: str | None, variables: dict[str, str]) -> tuple[Path, Path]:
    Path("mathrag.yaml").unlink(missing_ok=True)
    if text is not None:
        Path("mathrag.yaml").write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        return configured_data_dir(), load().data_dir


def test_it_is_the_folder_of_the_settings() -> None:
    texts = [
        None,
        "",
        "port: 81\n",
        "data_dir: elsewhere\n",
        "{data_dir: /a/b, port: 81}",
        '"data_dir": "x y"\nport: 1\n',
    ]
    settings = [
        {},
        {"MATHRAG_DATA_DIR": "here"},
        {"mathrag_data_dir": "small"},
        {"MATHRAG_DATA_DIR": ""},
        {"MATHRAG_PORT": "82"},
    ]
    found = {(text, str(variables)): named(folders, text, variables) for text, variables in product(texts, settings)}
    assert {case: (ours, theirs) for case, (ours, theirs) in found.items() if ours != theirs} == {}


def test_a_file_that_the_environment_names_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("mathrag.yaml").write_text("data_dir: one\n")
    Path("other.yaml").write_text("data_dir: other\n")
    monkeypatch.setenv("MATHRAG_CONFIG", "other.yaml")
    assert configured_data_dir() == load().data_dir == Path("other")


def test_a_secret_file_names_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "mathrag_data_dir").write_text("hidden")
    monkeypatch.setenv("MATHRAG_SECRETS_DIR", str(tmp_path / "secrets"))
    assert configured_data_dir() == load().data_dir == Path("hidden")
    monkeypatch.setenv("MATHRAG_SECRETS_DIR", str(tmp_path / "none"))
    with pytest.raises(Unavailable):
        configured_data_dir()


@pytest.mark.parametrize("text", ["data_dir: [1]\n", "data_dir: 7\n", "data_dir: {\n", "- data_dir\n"])
def test_what_is_no_folder_is_refused_as_the_settings_refuse_it(text: str) -> None:
    Path("mathrag.yaml").write_text(text)
    with pytest.raises(Exception) as ours:  # noqa: PT011 - the same as the other one
        configured_data_dir()
    with pytest.raises(type(ours.value)) as theirs:
        load()
    assert str(ours.value) == str(theirs.value)
