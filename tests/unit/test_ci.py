import re
import sys
from pathlib import Path

import pytest

from tests.unit.ci.scripts import load

steps = load("steps")
FILES = {
    "test_passes.py": "def test_it(): pass\n",
    "test_skipped.py": "import pytest\n@pytest.mark.skip(reason='no such server')\ndef test_it(): pass\n",
    "test_fails.py": "def test_it(): assert False\n",
    "test_broken.py": "import no_such_module\n",
    # Passes from its second run on, in whichever process that is.
    "test_flaky.py": """
from pathlib import Path
def test_it():
    seen = Path(__file__).with_suffix(".seen")
    again = seen.exists()
    seen.touch()
    assert again
""",
}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "PYTHON", sys.executable)
    monkeypatch.setattr(steps, "REPOSITORY", tmp_path)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugins = "-p tests.outcomes -p _hypothesis_pytestplugin -p no:cacheprovider"
    (tmp_path / "pytest.ini").write_text(f"[pytest]\naddopts = {plugins}\n")


def run(folder: Path, capfd: pytest.CaptureFixture[str], files: dict[str, str]) -> tuple[int, list[str]]:
    for name, text in files.items():
        (folder / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "--continue-on-collection-errors", *files]
    code = steps.main([steps.Step("A step", command, tests=True)])
    return code, capfd.readouterr().out.splitlines()


def test_only_what_fails_twice_fails_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = run(tmp_path, capfd, FILES)
    assert code == 1
    slowest = said[said.index("-- Slowest of: A step") + 1 :]
    assert {line.split()[-1] for line in slowest[:3]} == {
        f"test_{name}.py::test_it" for name in ("passes", "fails", "flaky")
    }
    summary = said[said.index("== Steps") :]
    assert [line for line in summary if line.startswith(("failed", "flaky", "not tested"))] == [
        "not tested: 1 (no such server)",
        "failed: test_broken.py",
        "failed: test_fails.py::test_it",
        "flaky: test_flaky.py::test_it",
    ]
    assert re.fullmatch(r"peak memory of a test process: [1-9]\d* MiB \(limit 600 MiB\)", summary[-2])
    assert summary[-1] == "2 passed, 2 failed, 1 skipped"


def test_a_run_whose_only_fault_is_a_flaky_test_succeeds(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = run(tmp_path, capfd, {"test_flaky.py": FILES["test_flaky.py"]})
    assert code == 0
    assert said[-1] == "1 passed, 0 failed, 0 skipped"


def test_a_step_that_runs_no_test_fails_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, said = run(tmp_path, capfd, {"test_empty.py": "\n"})
    assert code == 1
    assert "failed: A step: exit code 5" in said


def test_many_failed_tests_are_not_repeated(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    many = "".join(f"def test_{number}(): assert False\n" for number in range(steps.TOO_MANY))
    code, said = run(tmp_path, capfd, {"test_many.py": many})
    assert code == 1
    assert not [line for line in said if "Once more by itself" in line]
    assert said[-1] == f"0 passed, {steps.TOO_MANY} failed, 0 skipped"


def command(text: str) -> list[str]:
    return [sys.executable, "-c", text]


def test_a_step_that_fails_hides_no_later_one(capfd: pytest.CaptureFixture[str]) -> None:
    found = [steps.Step("First", command("raise SystemExit(3)")), steps.Step("Second", command("print('it ran')"))]
    assert steps.main(found) == 1
    said = capfd.readouterr().out.splitlines()
    assert {"it ran", "failed: First"} <= set(said)
    assert said[-1] == "0 passed, 1 failed, 0 skipped"


def test_an_advisory_is_printed_and_fails_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    code = steps.main([steps.Step("Known vulnerabilities", command("raise SystemExit(1)"), advisory=True)])
    said = capfd.readouterr().out.splitlines()
    assert code == 0
    assert "Known vulnerabilities: failed (a warning)" in said
    assert said[-1] == "0 passed, 0 failed, 0 skipped"
