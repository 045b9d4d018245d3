"""`mathrag plugin new`: the package of every kind is usable as it stands, and its test passes with plain pytest."""

import subprocess
import sys
from pathlib import Path

import pytest

from mathrag.cli.catalog import OBJECTS
from shared.runtime.plugin_trial import judge
from shared.shapes import Kind, State
from tests.running import REPOSITORY
from tests.unit.commands import mathrag

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("kind", [Kind(name) for name in OBJECTS])
def test_the_test_of_a_new_package_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    name = f"my-{kind}"
    assert mathrag("plugin", "new", kind, name, "--out", str(tmp_path)).exit_code == 0
    folder = tmp_path / f"mathrag-{name}"
    environment = {"PATH": "", "PYTHONPATH": f"{folder}:{REPOSITORY}"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", str(folder)], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout or "3 passed" in done.stdout
    monkeypatch.syspath_prepend(str(folder))
    module = f"mathrag_{name.replace('-', '_')}"
    verdict = judge(kind, name, f"{module}:{OBJECTS[kind]}")
    assert (verdict.state, verdict.detail) == (State.READY, "")
