"""`mathrag plugin`: a package to begin with, and what is said of those that are installed."""

import json
import tomllib
from pathlib import Path

import pytest

from mathrag.cli.output import Exit
from tests.unit.commands import Server, mathrag, says

LISTED = [
    {
        "kind": "pipeline", "name": "vote", "distribution": "mathrag-vote", "version": "1.0", "hash": "ab" * 32,
        "state": "ready", "detail": "", "fix": "", "jobs": [],
    },
    {
        "kind": "pipeline", "name": "gone", "distribution": "mathrag-gone", "version": "1.0", "hash": "cd" * 32,
        "state": "missing", "detail": "it is not installed", "fix": "pip install mathrag-gone==1.0", "jobs": ["first"],
    },
]  # fmt: skip


def test_the_list_says_of_a_bad_one_what_is_wrong_who_waits_and_what_to_do(server: Server) -> None:
    server(says(LISTED))
    said = mathrag("plugin").output
    assert said.splitlines()[1].split() == ["pipeline", "vote", "mathrag-vote", "1.0", "abababababab", "ready"]
    assert said.splitlines()[-1] == (
        "pipeline gone: it is not installed; jobs wait for it: first; fix: pip install mathrag-gone==1.0"
    )


def test_a_new_package_names_its_entry_point(tmp_path: Path) -> None:
    assert mathrag("plugin", "new", "pipeline", "best-of-two", "--out", str(tmp_path)).exit_code == 0
    project = tomllib.loads((tmp_path / "mathrag-best-of-two" / "pyproject.toml").read_text())["project"]
    assert project["name"] == "mathrag-best-of-two"
    assert project["entry-points"] == {"mathrag.pipelines": {"best-of-two": "mathrag_best_of_two:run"}}


def test_a_program_learns_where_the_new_package_is(tmp_path: Path) -> None:
    written = json.loads(mathrag("plugin", "new", "grader", "units", "--out", str(tmp_path), "--json").stdout)
    assert (written["kind"], written["name"]) == ("grader", "units")
    assert (Path(written["folder"]) / "pyproject.toml").is_file()


@pytest.mark.parametrize("name", ["Best", "best_of", "-best", "best-", "a" * 42, "class", "../up", "a b"])
def test_a_name_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    done = mathrag("plugin", "new", "pipeline", "--out", str(tmp_path), "--", name)
    assert done.exit_code != 0
    assert "is not a valid name of a plug-in" in done.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["template", "rubric"])
def test_a_kind_that_is_a_file_has_no_package(tmp_path: Path, kind: str) -> None:
    done = mathrag("plugin", "new", kind, "mine", "--out", str(tmp_path))
    assert done.exit_code == Exit.INVALID
    assert f"a {kind} is a file, not a package" in done.output
    assert f"plugins.{kind}s" in done.output
    assert not list(tmp_path.iterdir())


def test_a_folder_that_exists_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mathrag-vote").mkdir()
    assert "exists" in mathrag("plugin", "new", "pipeline", "vote", "--out", str(tmp_path)).output
    assert not list((tmp_path / "mathrag-vote").iterdir())
