"""Which source files were edited after a process had imported them, and who is told."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mathrag.cli.output import Exit
from services.orchestrator.api.jobs import list_edit_warnings
from shared.pipelines import registry
from shared.pipelines.source import Change, list_changes
from shared.settings import REPOSITORY
from tests.unit.commands import Server, job, mathrag, says

OWN, RAG, TEMPLATE = "shared/pipelines/dense.py", "shared/rag/fusion.py", "shared/rag/templates/cot-zh.toml"
EDIT = """
import json, sys
from pathlib import Path
import shared.pipelines.registry as registry
assert Path(registry.__file__).is_relative_to(Path.cwd()), registry.__file__

def look():
    return {
        "source": registry.source_hash(),
        "dense": registry.pipeline_hash("dense"),
        "changed": [change.file for change in registry.list_changed_files("dense")],
    }

print(json.dumps(look()))
for file in sys.argv[1:]:
    Path(file).write_text(Path(file).read_text() + chr(10) + "# edited" + chr(10))
print(json.dumps(look()))
"""


def edit_in_a_process(folder: Path, *files: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-c", EDIT, *files]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_process_names_the_files_that_were_edited_and_the_next_process_has_another_source(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "shared", tmp_path / "shared", ignore=shutil.ignore_patterns("__pycache__"))
    before, after = edit_in_a_process(tmp_path, OWN, RAG, TEMPLATE)
    assert before == {"source": registry.source_hash(), "dense": registry.pipeline_hash("dense"), "changed": []}
    assert after == {**before, "changed": [OWN, RAG, TEMPLATE]}
    restarted, _ = edit_in_a_process(tmp_path)
    assert restarted["source"] != before["source"]
    assert restarted == {**before, "source": restarted["source"]}


def test_the_hash_of_a_pipeline_is_that_of_its_name_and_version(monkeypatch: pytest.MonkeyPatch) -> None:
    dense, hybrid = registry.pipeline_hash("dense"), registry.pipeline_hash("hybrid")
    assert dense != hybrid
    later = registry.get("dense")._replace(version=registry.get("dense").version + 1)
    monkeypatch.setattr(registry, "get", lambda _: later)
    assert registry.pipeline_hash("dense") not in (dense, hybrid)


def test_files_that_came_and_went_are_changes_too() -> None:
    found = list_changes({"a.py": "1", "b.py": "2", "c.py": "3"}, {"b.py": "2", "c.py": "4", "d.py": "5"})
    assert [(each.file, each.imported is None, each.on_disk is None) for each in found] == [
        ("a.py", False, True), ("c.py", False, False), ("d.py", True, False),
    ]  # fmt: skip
    assert found[1].imported != found[1].on_disk


CHANGE = Change(file=OWN, imported="a" * 64, on_disk="b" * 64)


def test_a_warning_names_the_file_both_hashes_and_the_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "list_changed_files", lambda _: [CHANGE])
    (warning,) = list_edit_warnings(["dense", "hybrid"])
    assert all(word in warning for word in (OWN, "a" * 12, "b" * 12, "restart the service"))
    monkeypatch.setattr(registry, "list_changed_files", lambda _: [])
    assert list_edit_warnings(["dense"]) == []


def test_submit_prints_the_services_warnings_on_standard_error(server: Server) -> None:
    server(says({**job("running"), "warnings": [f"{OWN} was edited"]}, 202))
    arguments = ("job", "submit", "--name", "n", "--dataset", "d", "--pipeline", "dense", "--json")
    ended = mathrag(*arguments)
    assert ended.stderr == f"warning: {OWN} was edited\n"
    assert msgspec.json.decode(ended.stdout)["state"] == "running"


def test_the_list_of_pipelines_says_which_file_wants_a_restart(server: Server) -> None:
    shown: dict[str, Any] = {
        "name": "dense",
        "hash": "c" * 64,
        "summary": "s",
        "changed": [msgspec.to_builtins(CHANGE)],
    }
    server(says([shown]))
    ended = mathrag("pipeline", "list")
    assert (ended.exit_code, f"{OWN} was edited" in ended.stdout) == (Exit.DONE, True)
