"""What a pipeline's hash is taken over: what a process has imported, and not what a file says by now."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mathrag.cli.failures import Exit
from services.orchestrator.api.views import edited
from shared.contracts import canonical
from shared.pipelines import registry
from shared.pipelines.source import Change, changes
from shared.settings import REPOSITORY
from tests.unit.commands import Server, job, mathrag, says

WATCHED = """
import sys
from pathlib import Path
import shared.pipelines.registry as registry
from shared.pipelines.dense import dense
assert Path(registry.__file__).is_relative_to(Path.cwd()), registry.__file__
before = registry.pipeline_hash("dense") if sys.argv[1] == "asked" else None
for file in map(Path, sys.argv[2:]):
    file.write_text(file.read_text() + chr(10) + "# edited" + chr(10))
print(registry.pipeline_hash("dense"), *(change.file for change in registry.changed_files("dense")))
assert before in (None, registry.pipeline_hash("dense"))
"""
OWN, RAG = "shared/pipelines/dense.py", "shared/rag/fusion.py"


def watched(folder: Path, *edited: str, first: str = "asked") -> tuple[str, list[str]]:
    """A process that imports the pipelines of `folder`, then edits files: its hash, and what changed."""
    command = [sys.executable, "-c", WATCHED, first, *edited]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    hash_, *files = done.stdout.split()
    return hash_, files


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A folder with a copy of `shared`."""
    shutil.copytree(REPOSITORY / "shared", tmp_path / "shared", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.parametrize("first", ["asked", "not-asked"])
@pytest.mark.parametrize("file", [OWN, RAG])
def test_a_file_that_is_edited_after_its_import_changes_the_hash_of_the_next_process_only(
    clone: Path, file: str, first: str
) -> None:
    """Also where the hash is asked for only after the edit; the process says which file a restart would read."""
    before, _ = watched(clone)
    running, changed = watched(clone, file, first=first)
    after, unchanged = watched(clone)
    assert (running, changed, unchanged) == (before, [file], [])
    assert after != before


def test_the_hash_of_a_pipeline_is_what_it_was_before_sources_were_read_at_import() -> None:
    """The canonical text of its module and of all of shared/rag, so jobs of the release before still have theirs."""
    texts = {path.relative_to(REPOSITORY / "shared/rag").as_posix(): path.read_text("utf-8")
             for path in (REPOSITORY / "shared/rag").rglob("*") if path.suffix in (".py", ".toml")}  # fmt: skip
    own = (REPOSITORY / OWN).read_text("utf-8")
    assert registry.pipeline_hash("dense") == canonical.digest([own, sorted(texts.items())]).hex()


def test_files_that_came_and_went_are_changes_too() -> None:
    """By path; hashes tell which text is which."""
    found = changes({"a.py": "1", "b.py": "2", "c.py": "3"}, {"b.py": "2", "c.py": "4", "d.py": "5"})
    assert [(each.file, each.imported is None, each.on_disk is None) for each in found] == [
        ("a.py", False, True), ("c.py", False, False), ("d.py", True, False),
    ]  # fmt: skip
    assert found[1].imported != found[1].on_disk


CHANGE = Change(file=OWN, imported="a" * 64, on_disk="b" * 64)


def test_a_warning_names_the_file_both_hashes_and_the_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once a file, however many pipelines stand on it; none where nothing was edited."""
    monkeypatch.setattr(registry, "changed_files", lambda _: [CHANGE])
    (warning,) = edited(["dense", "hybrid"])
    assert all(word in warning for word in (OWN, "a" * 12, "b" * 12, "restart the service"))
    monkeypatch.setattr(registry, "changed_files", lambda _: [])
    assert edited(["dense"]) == []


def test_submit_prints_the_services_warnings_on_standard_error(server: Server) -> None:
    """So that `--json` stays JSON."""
    server(says({**job("running"), "warnings": [f"{OWN} was edited"]}, 202))
    arguments = ("job", "submit", "--name", "n", "--dataset", "d", "--pipeline", "dense", "--json")
    ended = mathrag(*arguments)
    assert ended.stderr == f"warning: {OWN} was edited\n"
    assert msgspec.json.decode(ended.stdout)["state"] == "running"


def test_the_list_of_pipelines_says_which_file_wants_a_restart(server: Server) -> None:
    """Below the table."""
    shown: dict[str, Any] = {
        "name": "dense",
        "hash": "c" * 64,
        "summary": "s",
        "changed": [msgspec.to_builtins(CHANGE)],
    }
    server(says([shown]))
    ended = mathrag("pipeline", "list")
    assert (ended.exit_code, f"{OWN} was edited" in ended.stdout) == (Exit.DONE, True)
