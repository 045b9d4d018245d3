"""What commands import before they do anything: what is not needed costs every user of a shell a second."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mathrag.cli.main import ENTRIES
from mathrag.client import address
from tests.unit.commands import command_of

HEAVY = {
    "alembic",
    "celery",
    "faiss",
    "fastapi",
    "math_verify",
    "numpy",
    "opentelemetry",
    "psutil",
    "pyarrow",
    "pydantic",
    "redis",
    "scipy",
    "services",
    "sqlalchemy",
    "starlette",
    "sympy",
    "tokenizers",
    "tools",
    "torch",
    "uvicorn",
    "yaml",
}
IMPORTED = """
import json, os, sys
from contextvars import copy_context
from mathrag.cli.main import app
for commands in json.loads(sys.argv[1]):
    if os.fork() == 0:
        before = set()
        for words in commands:
            try:
                copy_context().run(app, words)
            except SystemExit:
                pass
            packages = {name.partition(".")[0] for name in sys.modules}
            print("imported", json.dumps([words, sorted(packages - before)]), file=sys.stderr, flush=True)
            before |= packages
        os._exit(0)
    assert os.wait()[1] == 0
"""
"""Commands one after another, in a fork for every group of them: each imports only what none before it has imported."""
LIST, HELP = ("job", "list", "--print-curl"), ("job", "--help")
REQUESTS = (
    LIST, ("status",), ("down",), ("job", "list", "--limit", "5", "--print-curl"),
    ("job", "show", "first", "--print-curl"), ("job", "report", "first", "--print-curl"),
    ("experiment", "list", "--print-curl"), ("sample", "list", "first", "--print-curl"),
    ("corpus", "list", "--print-curl"), ("dataset", "list", "--print-curl"), ("gpu", "--print-curl"),
    ("model", "--print-curl"), ("pipeline", "--print-curl"), ("audit", "first", "--print-curl"),
    ("search", "What?", "--corpus", "c", "--print-curl"), ("plan", "first", "--print-curl"),
)  # fmt: skip
TEXTS = (HELP, ("--help",), ("--version",), ("rules", "--help"))
Command = tuple[str, ...]


def imported(folder: Path, *groups: tuple[Command, ...]) -> dict[Command, set[str]]:
    program = [sys.executable, "-c", IMPORTED, json.dumps(groups)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MATHRAG_")}
    ended = subprocess.run(program, env=environment, cwd=folder, capture_output=True, text=True, check=True)
    lines = [line.removeprefix("imported ") for line in ended.stderr.splitlines() if line.startswith("imported [")]
    found = {tuple(words): set(packages) for words, packages in map(json.loads, lines)}
    assert list(found) == [words for group in groups for words in group], ended.stderr
    return found


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[Command, set[str]]:
    return imported(tmp_path_factory.mktemp("empty"), REQUESTS, TEXTS)


def test_a_command_imports_what_it_needs(packages: dict[Command, set[str]]) -> None:
    assert {words: found & HEAVY for words, found in packages.items() if found & HEAVY} == {}


def test_help_needs_no_http_and_requests_no_drawing(packages: dict[Command, set[str]]) -> None:
    assert "httpx2" not in packages[HELP]
    assert "rich" not in packages[LIST]


def test_where_a_stack_runs_a_settings_file_that_names_no_folder_is_not_parsed(tmp_path: Path) -> None:
    (tmp_path / "mathrag.yaml").write_text("port: 8081\n")
    (tmp_path / ".mathrag").mkdir()
    running = address.State(pid=1, url="http://127.0.0.1:9", phase="running", children=())
    address.write_state(tmp_path / ".mathrag", running)
    assert not imported(tmp_path, (LIST,))[LIST] & HEAVY


def test_the_list_of_commands_says_what_the_commands_say() -> None:
    listed = {entry.name: entry.help for entry in ENTRIES}
    assert {name: " ".join((command_of(name).help or "").partition("\n\n")[0].split()) for name in listed} == listed
