"""What commands import before they do anything: what is not needed costs every user of a shell a second."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mathrag.cli.main import ENTRIES
from mathrag.client import stack_state
from tests.unit.commands import command_of

HEAVY = {
    "alembic",
    "altair",
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
    "torch",
    "uvicorn",
    "world",
    "yaml",
}
IMPORTED = """
import sys
from mathrag.cli.main import app
try:
    app(sys.argv[1:])
finally:
    print(" ".join({name.partition(".")[0] for name in sys.modules}), file=sys.stderr)
"""


def imported(folder: Path, *words: str) -> set[str]:
    """Packages that are imported at the end of a command, in a process of its own."""
    command = [sys.executable, "-c", IMPORTED, *words]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MATHRAG_")}
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    return set(ended.stderr.splitlines()[-1].split())


@pytest.mark.parametrize(
    "words",
    [
        ("--help",), ("--version",), ("job", "--help"), ("job", "list", "--print-curl"), ("status",), ("down",),
        ("rules", "--help"), ("job", "list", "--limit", "5", "--print-curl"),
        ("job", "show", "first", "--print-curl"), ("job", "report", "first", "--print-curl"),
        ("experiment", "list", "--print-curl"), ("sample", "list", "first", "--print-curl"),
        ("corpus", "list", "--print-curl"), ("dataset", "list", "--print-curl"), ("gpu", "--print-curl"),
        ("model", "--print-curl"), ("pipeline", "--print-curl"), ("audit", "first", "--print-curl"),
        ("search", "What?", "--corpus", "c", "--print-curl"), ("plan", "first", "--print-curl"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_imports_what_it_needs(tmp_path: Path, words: tuple[str, ...]) -> None:
    """No server, no database, no mathematics, and no reader of settings."""
    assert not imported(tmp_path, *words) & HEAVY


def test_help_needs_no_http_and_requests_no_drawing(tmp_path: Path) -> None:
    """Either takes as long as all else together."""
    assert "httpx2" not in imported(tmp_path, "job", "--help")
    assert "rich" not in imported(tmp_path, "job", "list", "--print-curl")


def test_where_a_stack_runs_a_settings_file_that_names_no_folder_is_not_parsed(tmp_path: Path) -> None:
    """A command that only asks the API wants one setting of it."""
    (tmp_path / "mathrag.yaml").write_text("port: 8081\n")
    (tmp_path / ".mathrag").mkdir()
    running = stack_state.State(pid=1, url="http://127.0.0.1:9", phase="running", children=())
    stack_state.write(tmp_path / ".mathrag", running)
    assert not imported(tmp_path, "job", "list", "--print-curl") & HEAVY


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_the_list_of_commands_says_what_the_commands_say(entry: object) -> None:
    """The list is shown without importing them."""
    name, line = entry.name, entry.help  # type: ignore[attr-defined]
    assert " ".join((command_of(name).help or "").partition("\n\n")[0].split()) == line
