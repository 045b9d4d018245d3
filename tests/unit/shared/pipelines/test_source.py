"""What a pipeline's hash is taken over: what a process has imported, and not what a file says by now."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest

from mathrag.cli.failures import Exit
from services.orchestrator.api.views import list_edit_warnings
from shared.contracts.params import Params
from shared.contracts.samples import Item
from shared.pipelines import registry
from shared.pipelines.source import Change, collect_files, list_changes, read_as_imported
from shared.runtime.price import dry_run, make_placeholder_job
from shared.settings import REPOSITORY
from tests.unit.commands import Server, job, mathrag, says
from tests.unit.shared.pipelines.test_pipeline_reads import VARIANTS

OWN, RAG, TEMPLATE = "shared/pipelines/dense.py", "shared/rag/fusion.py", "shared/rag/templates/cot-zh.toml"
EDITED = (OWN, RAG, TEMPLATE)
WATCHED = """
import json, os, sys
from pathlib import Path
import shared.pipelines.registry as registry
from shared.pipelines.dense import dense
assert Path(registry.__file__).is_relative_to(Path.cwd()), registry.__file__

def watched(first, file):
    before = registry.pipeline_hash("dense") if first == "asked" else None
    text = Path(file).read_text()
    Path(file).write_text(text + chr(10) + "# edited" + chr(10))
    hashes = [registry.pipeline_hash("dense")]
    changed = [change.file for change in registry.list_changed_files("dense")]
    Path(file).write_text(text)
    return [first, file, {*hashes, before or hashes[0], registry.pipeline_hash("dense")}, changed]

for first in ("asked", "not-asked"):
    for file in sys.argv[1:]:
        if os.fork() == 0:
            first, file, hashes, changed = watched(first, file)
            print(json.dumps([first, file, sorted(hashes), changed]), flush=True)
            os._exit(0)
        assert os.wait()[1] == 0
"""
"""Each time in a fork of a process that has imported the pipelines, and was not asked for any hash."""
HASHES = """
import json, os, sys
from pathlib import Path
import msgspec

def hashes():
    from shared.pipelines import registry
    assert Path(registry.__file__).is_relative_to(Path.cwd()), registry.__file__
    return {"": registry.source_hash(), **{name: registry.pipeline_hash(name) for name in registry.names()}}

for file in sys.argv[1:]:
    if os.fork() == 0:
        text = Path(file).read_text("utf-8")
        Path(file).write_text(text + chr(10) + "# edited" + chr(10), "utf-8")
        print(json.dumps([file, hashes()]), flush=True)
        Path(file).write_text(text, "utf-8")
        os._exit(0)
    assert os.wait()[1] == 0
"""
"""Each time in a fork of a process that has imported nothing of ours."""
RUNTIME = ("shared/runtime/", "shared/pipelines/binding.py", "shared/processes/processor_time.py")
"""What drives every pipeline, and turns its calls into requests."""
LOADED = """
import json, os, sys
from importlib import import_module
from pathlib import Path
import msgspec

def loaded():
    ours = [module.__file__ for name, module in sys.modules.items() if name.partition(".")[0] == "shared"]
    return [Path(file).relative_to(Path.cwd()).as_posix() for file in ours]

assert not loaded()
for module in sys.argv[1:]:
    if os.fork() == 0:
        import_module(module)
        print(json.dumps([module, loaded()]), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""
"""Each time in a fork of a process that has imported nothing of ours."""


def printed(program: str, folder: Path, *words: str) -> list[Any]:
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clone")
    shutil.copytree(REPOSITORY / "shared", folder / "shared", ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def test_a_file_that_is_edited_after_its_import_changes_the_hash_of_the_next_process_only(clone: Path) -> None:
    before = registry.pipeline_hash("dense")
    found = {(first, file): (hashes, changed) for first, file, hashes, changed in printed(WATCHED, clone, *EDITED)}
    assert found == {(first, file): ([before], [file]) for first, file in product(("asked", "not-asked"), EDITED)}
    for file, hashes in printed(HASHES, clone, *EDITED):
        assert hashes["dense"] != before, file


USED_BY = {
    "shared/mathtext/verification.py": set[str](),
    "shared/rag/rule_rqp.py": {"mathrag-gate"},
    "shared/rag/critic.py": {"critic-loop"},
    "shared/rag/strips.py": {"crag", "enhanced-crag"},
    "shared/rag/terms.toml": {"crag", "critic-loop", "enhanced", "enhanced-crag", "hyde", "rulerag"},
    "shared/rag/templates/reasoning-quality.toml": {"mathrag-gate"},
    "shared/rag/templates/self-rag.toml": {"self-rag"},
    "shared/rag/templates/hyde-passage.toml": {"enhanced", "enhanced-crag", "hyde"},
    "shared/rag/prompts.py": set(registry.names()),
    "shared/contracts/params.py": set(registry.names()),
}


def test_an_edit_changes_the_pipelines_that_use_the_file_and_no_other(clone: Path) -> None:
    before = {name: registry.pipeline_hash(name) for name in registry.names()} | {"": registry.source_hash()}
    found = dict(printed(HASHES, clone, *USED_BY))
    changed = {file: {name for name in before if hashes[name] != before[name]} for file, hashes in found.items()}
    assert changed == {file: {"", *pipelines} for file, pipelines in USED_BY.items()}


def test_the_hash_covers_the_modules_that_are_imported_with_the_pipeline_and_no_other() -> None:
    modules = [registry.get(name).run.__module__ for name in registry.names()]
    covered = {
        module: {file for file in collect_files(module, read_as_imported) if file.endswith(".py")} for module in modules
    }
    assert {module: set(files) for module, files in printed(LOADED, REPOSITORY, *modules)} == covered


@pytest.mark.parametrize("name", registry.list_offered())
def test_the_hash_covers_every_file_that_the_pipeline_runs_or_reads(name: str, used: Callable[[str], set[str]]) -> None:
    files = used(name)
    assert registry.get(name).run.__module__.replace(".", "/") + ".py" in files
    assert any(file.endswith(".toml") for file in files)
    assert files <= collect_files(registry.get(name).run.__module__, read_as_imported).keys()


@pytest.fixture(scope="module")
def used() -> Callable[[str], set[str]]:
    files: set[str] = set()

    def note_function(frame: FrameType, _event: str, _argument: object) -> None:
        files.add(frame.f_code.co_filename)

    def note_opened(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[0], str):
            files.add(arguments[0])

    def used(name: str) -> set[str]:
        forget_what_was_read()
        files.clear()
        sys.setprofile(note_function)
        try:
            run_all_parts(name)
        finally:
            sys.setprofile(None)
        paths = map(Path, files)
        below = (file.relative_to(REPOSITORY).as_posix() for file in paths if file.is_relative_to(REPOSITORY))
        return {file for file in below if file.startswith("shared/") and not file.startswith(RUNTIME)}

    sys.addaudithook(note_opened)
    return used


def forget_what_was_read() -> None:
    for module in [
        module for name, module in sys.modules.items() if name.startswith(("shared.rag.", "shared.mathtext."))
    ]:
        for value in vars(module).values():
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def run_all_parts(name: str) -> None:
    for variant, question in product(VARIANTS, ("What is the sum of 2 and 3?", "2 加 3 等于多少？")):
        job = make_placeholder_job(name, msgspec.convert(variant, Params))
        for _ in dry_run(job, Item(ordinal=0, question=question, gold="5")):
            pass


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
