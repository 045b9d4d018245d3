"""What commands import before they do anything, and which of them work without the server."""

import json
import os
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import pytest

import mathrag
from mathrag.cli.main import ENTRIES
from mathrag.cli.output import Exit
from mathrag.client import address
from mathrag.installation import CLIENT, install_command
from tests import light
from tests.unit.commands import command_of

# What commands import before they do anything: what is not needed costs every user of a shell a second.

HEAVY = {
    "alembic", "celery", "faiss", "fastapi", "math_verify", "numpy", "opentelemetry", "pandas", "polars", "psutil",
    "pyarrow", "pydantic", "redis", "scipy", "services", "sqlalchemy", "starlette", "sympy", "tokenizers", "tools",
    "torch", "uvicorn", "yaml",
}  # fmt: skip
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


# What works where the client is installed alone.

PROGRAM = """
import gc, json, os, sys, traceback
from importlib import import_module

from mathrag.errors import NotInstalled

modules, commands = json.loads(sys.argv[1])
lacking = []
for name in modules:
    try:
        import_module(name)
    except (ModuleNotFoundError, NotInstalled):
        lacking.append(name)
print(json.dumps(lacking))


def read_parquet():
    from mathrag.reading import rows

    with open("rows.parquet", "wb") as file:
        file.write(b"PAR1" * 4)
    try:
        next(rows.read_parquet(open("rows.parquet", "rb"), "rows", 1000, 1000))
    except NotInstalled as error:
        print(error.hint)


from mathrag.cli.main import app

gc.freeze()
sys.stdout.flush()
for place, words in enumerate(commands):
    os.mkdir(str(place))
    if os.fork() == 0:
        os.chdir(str(place))
        os.dup2(os.open("stdout", os.O_CREAT | os.O_WRONLY), 1)
        os.dup2(os.open("stderr", os.O_CREAT | os.O_WRONLY), 2)
        code = 0
        try:
            app(words) if words else read_parquet()
        except SystemExit as ended:
            code = int(ended.code or 0)
        except BaseException:
            traceback.print_exc()
            code = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
"""Imports modules, then calls each command in a fork and in an empty folder of its own; none reads a Parquet file."""
PARQUET: tuple[str, ...] = ()
NEED_MORE = {
    ("up", "--detach", "--scale", "judge=2"): "mathrag-gate[embedded]",
    ("demo",): "mathrag-gate[embedded]",
    ("model", "connect", "qwen2.5:7b"): "mathrag-gate[embedded]",
    ("key", "create", "first", "--scope", "read"): "mathrag-gate",
    ("grade", "--from", "answers.jsonl"): "mathrag-gate",
    ("retrieval", "eval", "--from", ".", "--mode", "sparse"): "mathrag-gate",
    ("report", "bundle", "first", "--out", "report"): "mathrag-gate",
    ("corpus", "delete", "docs", "--yes"): "mathrag-gate",
    ("experiment", "schema"): "mathrag-gate",
    ("mcp",): "mathrag[mcp]",
}
PURGE, HELP_OF_UP, DOCTOR = ("purge", "--keep-last", "3", "--json"), ("up", "--help"), ("doctor", "--json")


@pytest.fixture(scope="module")
def client_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("client")
    light.link_into(folder)
    (folder / "mathrag").symlink_to(light.REPOSITORY / "mathrag")
    ours = Path(str(distribution(CLIENT).locate_file("")))
    for information in ours.glob("mathrag-*.dist-info"):
        (folder / information.name).symlink_to(information)
    return folder


def list_modules() -> list[str]:
    files = (light.REPOSITORY / "mathrag").rglob("*.py")
    names = (".".join(file.relative_to(light.REPOSITORY).with_suffix("").parts) for file in files)
    return sorted(name.removesuffix(".__init__") for name in names)


class Ended(NamedTuple):
    code: int
    stdout: str
    stderr: str
    folder: Path
    """An empty one, but for what it said and wrote."""


class Light(NamedTuple):
    lacking: list[str]
    """Modules that cannot be imported."""
    ended: dict[tuple[str, ...], Ended]
    stderr: str


@pytest.fixture(scope="module")
def in_light(client_alone: Path, tmp_path_factory: pytest.TempPathFactory) -> Light:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MATHRAG_")}
    environment["PYTHONPATH"] = str(client_alone)
    commands = [*NEED_MORE, PURGE, HELP_OF_UP, DOCTOR, PARQUET]
    words = json.dumps([list_modules(), commands])
    folder = tmp_path_factory.mktemp("empty")
    # Without `site`, only what PYTHONPATH names can be imported.
    command = [sys.executable, "-S", "-c", PROGRAM, words]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    lacking, *codes = map(json.loads, done.stdout.splitlines())
    folders = [folder / str(place) for place in range(len(commands))]
    ended = [
        Ended(code, (at / "stdout").read_text("utf-8"), (at / "stderr").read_text("utf-8"), at)
        for code, at in zip(codes, folders, strict=True)
    ]
    return Light(lacking, dict(zip(commands, ended, strict=True)), done.stderr)


def test_every_module_of_the_client_is_imported_without_the_server_and_but_for_two_without_an_extra(
    in_light: Light,
) -> None:
    archives = ["mathrag.reading.archives"] if sys.version_info < (3, 14) else []
    assert in_light.lacking == ["mathrag.mcp", *archives], in_light.stderr


@pytest.mark.parametrize(("words", "requirement"), NEED_MORE.items())
def test_a_command_that_needs_more_names_the_command_that_installs_it(
    words: tuple[str, ...], requirement: str, in_light: Light
) -> None:
    ended = in_light.ended[words]
    assert ended.code == Exit.USAGE, ended.stderr
    error, fix = ended.stderr.splitlines()
    missing = "the server (`mathrag-gate`)" if requirement.startswith("mathrag-gate") else f"`mcp` of `{requirement}`"
    assert error == f"error: {missing} is not installed"
    assert fix == f"  fix: {install_command(requirement)}"
    assert not (ended.folder / ".mathrag").exists()


def test_parquet_alone_of_all_formats_needs_an_extra(in_light: Light) -> None:
    ended = in_light.ended[PARQUET]
    assert ended.stdout.strip() == install_command("mathrag[parquet]"), ended.stderr


def test_the_error_is_an_object_with_json(in_light: Light) -> None:
    ended = in_light.ended[PURGE]
    said = json.loads(ended.stderr)["error"]
    assert (ended.code, said["kind"], said["hint"]) == (Exit.USAGE, "not_installed", install_command("mathrag-gate"))


def test_the_help_of_such_a_command_says_what_installs_it(in_light: Light) -> None:
    ended = in_light.ended[HELP_OF_UP]
    words = " ".join(ended.stdout.split())
    assert ended.code == Exit.DONE, ended.stderr
    assert "Start PostgreSQL, Redis and all services" in words
    assert "[embedded]" in words.replace(" ", "")


def test_the_doctor_of_the_client_checks_the_service_alone(in_light: Light) -> None:
    ended = in_light.ended[DOCTOR]
    checks = {check["name"]: check for check in json.loads(ended.stdout)["checks"]}
    assert ended.code == Exit.FINDING
    assert {name: check["ok"] for name, check in checks.items()} == {"api": False}


# `import mathrag` costs nothing, and its names are there.


def imported_by(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split())


def test_a_folder_of_the_user_called_shared_or_services_shadows_nothing_that_the_client_needs(tmp_path: Path) -> None:
    for name in ("shared", "services"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    code = (
        "import mathrag, mathrag.cli.main; mathrag.Client; mathrag.AsyncClient; import shared; print(shared.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path / "shared" / "__init__.py")


def test_the_package_alone_imports_nothing() -> None:
    assert not imported_by("import mathrag") & ({"httpx2", "msgspec", "anyio"} | HEAVY)


def test_clients_import_what_they_need() -> None:
    client = "client = mathrag.Client('http://127.0.0.1:1'); client.jobs; client.corpora; client.rules; client.run"
    assert not imported_by(f"import mathrag, mathrag.client.inputs; {client}; mathrag.AsyncClient") & HEAVY


def test_a_name_that_there_is_not_is_an_attribute_error() -> None:
    assert {"Client", "AsyncClient", "Failed"} <= set(dir(mathrag))
    with pytest.raises(AttributeError, match="Clinet"):
        mathrag.Clinet  # noqa: B018
