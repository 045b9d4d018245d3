"""What works where the wheel is installed without extras: its commands run without the packages of any."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import distribution
from pathlib import Path

import pytest

from mathrag.cli.failures import Exit
from shared.extras import DISTRIBUTION, install_command
from tests import light

Run = Callable[..., "subprocess.CompletedProcess[str]"]
IMPORTING = """
import json, sys
from importlib import import_module
lacking = []
for name in sys.argv[1:]:
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        lacking.append(name)
print(json.dumps(lacking))
"""
READING = """
import sys
from shared.errors import NotInstalled
from shared.ingest import parquet
try:
    next(parquet.rows(open(sys.argv[1], "rb"), "rows", 1000, 1000))
except NotInstalled as error:
    print(error.hint)
"""
COMMAND = """
import sys
from mathrag.cli.main import app
app(sys.argv[1:])
"""
STARTS_SERVICES = {"own_stack", "up", "open", "reproduce", "reproduce_report", "reproduce_steps"}
READS_THE_DATABASE = {"key", "purge"}
COMPUTES = {"held_out", "link_prediction"}
"""Rules over facts, which only `rules evaluate` imports."""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that such an environment has, and our own distribution as it is installed here."""
    folder = tmp_path_factory.mktemp("light")
    light.link_into(folder)
    ours = Path(str(distribution(DISTRIBUTION).locate_file("")))
    for information in ours.glob("mathrag_gate-*.dist-info"):
        (folder / information.name).symlink_to(information)
    return folder


@pytest.fixture
def in_light(packages: Path, tmp_path: Path) -> Run:
    """Runs a program without the packages that a light installation lacks, in an empty folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MATHRAG_")}
    environment["PYTHONPATH"] = os.pathsep.join((str(light.REPOSITORY), str(packages)))

    def run(program: str, *words: str) -> "subprocess.CompletedProcess[str]":
        # Without `site`, only what PYTHONPATH names can be imported.
        command = [sys.executable, "-S", "-c", program, *words]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    return run


def modules(*packages: str) -> list[str]:
    """All modules of packages of `mathrag`, by their full names."""
    files = (file for package in packages for file in (light.REPOSITORY / "mathrag" / package).glob("*.py"))
    names = (".".join(file.relative_to(light.REPOSITORY).with_suffix("").parts) for file in files)
    return sorted(name.removesuffix(".__init__") for name in names)


def test_client_commands_and_reports_are_imported_without_any_extra(in_light: Run) -> None:
    """But for those that start services, read the database or compute with arrays: only these need one."""
    ended = in_light(IMPORTING, *modules("client", "cli", "report"))
    lacking = {name.removeprefix("mathrag.cli.") for name in json.loads(ended.stdout)}
    assert lacking == STARTS_SERVICES | READS_THE_DATABASE | COMPUTES, ended.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (("up", "--detach", "--scale", "judge=2"), "embedded"),
        (("demo",), "embedded"),
        (("key", "create", "first", "--scope", "read"), "server"),
        (("grade", "--from", "answers.jsonl"), "server"),
        (("retrieval", "eval", "--from", ".", "--mode", "sparse"), "server"),
        (("mcp",), "mcp"),
    ],
)
def test_a_command_that_needs_an_extra_names_the_command_that_installs_it(
    words: tuple[str, ...], extra: str, in_light: Run, tmp_path: Path
) -> None:
    """Whatever its options are; nothing is started, and nothing of it is a traceback."""
    ended = in_light(COMMAND, *words)
    assert ended.returncode == Exit.USAGE, ended.stderr
    error, fix = ended.stderr.splitlines()
    assert f"of the extra `{extra}` is not installed" in error
    assert fix == f"  fix: {install_command(extra)}"
    assert not (tmp_path / ".mathrag").exists()


def test_parquet_alone_of_all_formats_needs_an_extra(in_light: Run, tmp_path: Path) -> None:
    """It is refused before a process is started that could not read it."""
    (tmp_path / "rows.parquet").write_bytes(b"PAR1" * 4)
    ended = in_light(READING, "rows.parquet")
    assert ended.stdout.strip() == install_command("server"), ended.stderr


def test_the_error_is_an_object_with_json(in_light: Run) -> None:
    """For programs, as every other error."""
    ended = in_light(COMMAND, "purge", "--keep-last", "3", "--json")
    said = json.loads(ended.stderr)["error"]
    assert (ended.returncode, said["kind"], said["hint"]) == (Exit.USAGE, "not_installed", install_command("server"))


def test_the_help_of_such_a_command_says_what_installs_it(in_light: Run) -> None:
    """A person reads it before any of it is tried."""
    ended = in_light(COMMAND, "up", "--help")
    words = " ".join(ended.stdout.split())
    assert ended.returncode == Exit.DONE, ended.stderr
    assert "Start PostgreSQL, Redis and all services" in words
    assert "[embedded]" in words.replace(" ", "")


def test_the_doctor_says_how_far_it_could_look(in_light: Run) -> None:
    """Where no service answers, it would look for itself, and lacks the packages."""
    ended = in_light(COMMAND, "doctor", "--json")
    checks = {check["name"]: check for check in json.loads(ended.stdout)["checks"]}
    assert ended.returncode == Exit.FINDING
    assert checks["configuration"]["ok"]
    assert not checks["api"]["ok"]
    assert checks["packages"]["fix"] == install_command("server")
