"""The scripts of `.ci`: steps with their summaries, generated files, affected tests, the site's links, advisories."""

import importlib.util
import json
import re
import runpy
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import grimp
import pytest
from fastapi import APIRouter, FastAPI
from pydantic import Field

from services.orchestrator.api.routes import route
from services.orchestrator.app import build
from shared import settings
from shared.settings import REPOSITORY, Settings
from shared.shapes import Scope

# Scripts of `.ci`, which is not a package: they are loaded by their file.


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, REPOSITORY / ".ci" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


steps = load("steps")
words = load("words")
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


# What repeats the code is generated from it, and the check names what is not as the code says.


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.syspath_prepend(REPOSITORY / ".ci" / "generate")
    names = runpy.run_path(str(REPOSITORY / ".ci" / "generate" / "__main__.py"))
    application = cache(lambda: build(Settings(database_url="unused")))
    for module in (names["answers"], names["tables"], names["reference"].api_pages):
        monkeypatch.setattr(module, "build", lambda _: application())
    return names


def test_what_is_committed_is_what_is_generated(generator: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert generator["main"](["--check"]) == 0, capsys.readouterr().out


def test_a_stale_file_is_named_by_the_check_and_then_written(
    generator: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "table.md"
    file.write_text("old")
    main = generator["main"]
    main.__globals__.update(list_files=lambda: [(file, "new")], REPOSITORY=tmp_path)
    assert main(["--check"]) == 1
    assert file.read_text() == "old"
    assert "table.md is not as the code says: make generate" in capsys.readouterr().out
    assert main([]) == 0
    assert file.read_text() == "new"
    assert main(["--check"]) == 0


def test_a_new_setting_stands_in_every_text(generator: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Workers(settings.Workers):
        naps: int = Field(default=7, description="Naps of a worker (docs/how-to/scaling.md).")

    class More(settings.Settings):
        workers: Workers = Workers()

    generated = generator["list_files"].__globals__
    reference = generator["reference"]
    for module in (reference, generated["settings_example"], generated["config"]):
        monkeypatch.setattr(module, "Settings", More)
    monkeypatch.setattr(generator["answers"], "answers", str)
    monkeypatch.setattr(reference.api_pages, "pages", lambda: iter(()))
    monkeypatch.setattr(reference.commands, "page", str)
    texts = {file.name: text for file, text in generator["list_files"]()}
    assert "\n  naps: 7 # Naps of a worker (docs/how-to/scaling.md).\n" in texts["mathrag.example.yaml"]
    assert (
        "| `workers.naps` | 7 | Naps of a worker ([Scaling, backups and upgrades](../how-to/scaling.md)). |"
        in texts["settings.md"]
    )
    assert '"naps": {' in texts["config-schema.json"]


def test_a_new_route_stands_in_the_table_of_routes(generator: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    router = APIRouter(prefix="/v1/shelves")

    @route(router, "GET", "/{shelf}", Scope.READ, "Get a shelf", {})
    async def get(shelf: str, wide: bool = False, limit: int = 5) -> None:
        """By name (docs/how-to/api.md#tags).

        More of it.
        """

    @route(router, "POST", "", None, "Is there room?", {})
    async def ask() -> None:
        """Answers at once."""

    application = FastAPI(openapi_url=None)
    application.include_router(router)
    tables = generator["tables"]
    monkeypatch.setattr(tables, "build", lambda _: application)
    *_, first, second = tables.table(("method",), tables.routes(), "how-to/api.md").splitlines()
    assert first == "| GET | `/v1/shelves/{shelf}?wide=&limit=` | `read` | Get a shelf. By name ([tags](#tags)). |"
    assert second == "| POST | `/v1/shelves` | none | Is there room? Answers at once. |"


affected = load("affected")
PAGES_CONFTEST = "tests/integration/pages/conftest.py"

GRAPH = grimp.ImportGraph()
for importer, imported in (
    ("tests.unit.mathrag_gate.stack.test_backup", "mathrag_gate.stack.postgres"),
    ("mathrag_gate.stack.supervisor", "mathrag_gate.stack.postgres"),
    ("tests.unit.mathrag_gate.stack.test_supervisor", "mathrag_gate.stack.supervisor"),
    ("tests.e2e.test_backup", "mathrag_gate.stack.postgres"),
    ("tests.unit.conftest", "mathrag.client.client"),
    ("tests.integration.test_labels_api", "shared.storage.labels"),
    ("services.orchestrator.reports.results", "shared.storage.labels"),
    ("tests.unit.services.orchestrator.test_report", "services.orchestrator.reports.results"),
    ("tests.integration.test_audit", "shared.storage.provenance"),
    ("tests.unit.shared.rag.test_fusion", "shared.storage.provenance"),
):
    GRAPH.add_import(importer=importer, imported=imported)


def find_tests(*files: str) -> list[str]:
    return affected.affected_tests(map(Path, files), GRAPH)  # type: ignore[no-any-return]


def find_nearest_tests(*files: str) -> list[str]:
    return affected.nearest_tests(map(Path, files), GRAPH)  # type: ignore[no-any-return]


def test_all_tests_that_import_a_changed_module_are_found_nearest_first() -> None:
    assert find_tests("mathrag_gate/stack/postgres.py") == [
        "tests/unit/mathrag_gate/stack/test_backup.py",
        "tests/unit/mathrag_gate/stack/test_supervisor.py",
    ]
    assert find_tests("mathrag_gate/stack/supervisor.py") == ["tests/unit/mathrag_gate/stack/test_supervisor.py"]


def test_the_nearest_tests_are_those_fewest_imports_away_from_each_changed_file() -> None:
    assert find_nearest_tests("mathrag_gate/stack/postgres.py") == ["tests/unit/mathrag_gate/stack/test_backup.py"]
    assert find_nearest_tests("mathrag_gate/stack/postgres.py", "shared/storage/provenance.py") == [
        "tests/unit/mathrag_gate/stack/test_backup.py",
        "tests/unit/shared/rag/test_fusion.py",
    ]


def test_integration_tests_are_the_nearest_where_no_unit_test_is_as_near() -> None:
    assert find_nearest_tests("shared/storage/labels.py") == ["tests/integration/test_labels_api.py"]
    assert find_nearest_tests("shared/storage/provenance.py") == ["tests/unit/shared/rag/test_fusion.py"]


def test_a_command_has_the_tests_that_are_named_after_it() -> None:
    assert find_nearest_tests("mathrag_gate/cli/grade.py") == ["tests/unit/mathrag_gate/cli/test_grade.py"]


def test_a_conftest_that_imports_a_module_does_not_make_its_whole_folder_the_nearest_tests() -> None:
    assert find_nearest_tests("mathrag/client/client.py") == []


def test_a_changed_test_is_found_and_one_that_is_gone_is_not() -> None:
    assert find_tests("tests/unit/test_ci.py", "tests/unit/ci/test_gone.py", "README.md") == ["tests/unit/test_ci.py"]


def test_a_changed_conftest_affects_all_tests_of_its_folder() -> None:
    for found in (find_tests(PAGES_CONFTEST), find_nearest_tests(PAGES_CONFTEST)):
        assert "tests/integration/pages/test_jobs.py" in found
        assert all(file.startswith("tests/integration/pages/test_") for file in found)


# What `make docs` does besides Zensical: the index for language models, and the check of the built site.

CI = REPOSITORY / ".ci"
GOOD = '<h1 id="top">A</h1><a href="b.html#there">b</a><img src="c.png"><a href="https://example.org">x</a>'


@pytest.fixture
def links(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "a.html").write_text(GOOD)
    (tmp_path / "b.html").write_text('<h2 id="there">B</h2><a href="a.html">a</a>')
    (tmp_path / "c.png").write_text("")
    names = runpy.run_path(str(CI / "site_links.py"))
    names["main"].__globals__["SITE"] = tmp_path
    return names


def test_a_site_without_dead_links_passes(links: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert links["main"]() == 0
    assert capsys.readouterr().out == "2 pages, 0 dead links\n"


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ('<a href="d.html">d</a>', "d.html leads nowhere"),
        ('<a href="b.html#here">b</a>', "b.html#here names an anchor that is not there"),
        ('<a href="#bottom">down</a>', "#bottom names an anchor that is not there"),
        ('<img src="d.png">', "d.png leads nowhere"),
        ('<script src="https://example.org/x.js"></script>', "https://example.org/x.js is loaded from elsewhere"),
        ('<link href="//example.org/font.css" rel="stylesheet">', "//example.org/font.css is loaded from elsewhere"),
    ],
)
def test_a_dead_link_and_what_is_loaded_from_elsewhere_are_named(
    links: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], added: str, said: str
) -> None:
    (tmp_path / "a.html").write_text(GOOD + added)
    assert links["main"]() == 1
    assert f"a.html: {said}\n" in capsys.readouterr().out


def test_the_index_for_language_models_names_every_page_with_its_title() -> None:
    index = runpy.run_path(str(CI / "llms.py"))["index"]()
    named = dict(re.findall(r"^- \[(.+?)\]\(([^)]+)\)", index, re.MULTILINE))
    navigation = (REPOSITORY / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    assert sorted(named.values()) == sorted(re.findall(r"[\w/-]+\.md", navigation))
    assert named["Exit codes"] == "reference/exit-codes.md"


# The check for known vulnerabilities fails for one, and never calls a check that did not happen a success.


@pytest.fixture(scope="module")
def advisories() -> ModuleType:
    return load("advisories")


def report(*packages: dict[str, Any]) -> str:
    return json.dumps({"dependencies": packages, "fixes": []})


SOUND: dict[str, Any] = {"name": "sound", "version": "1", "vulns": []}
UNKNOWN: dict[str, Any] = {"name": "unknown", "skip_reason": "not found"}
BROKEN: dict[str, Any] = {"name": "broken", "version": "2", "vulns": [{"id": "CVE-1", "fix_versions": ["3"]}]}


def test_a_vulnerability_fails(advisories: ModuleType) -> None:
    code, words = advisories.judge(report(SOUND, UNKNOWN, BROKEN), "")
    assert code == 1
    assert "broken 2: CVE-1, mended in 3" in words


def test_none_is_a_success_that_counts_what_was_checked(advisories: ModuleType) -> None:
    assert advisories.judge(report(SOUND), "") == (0, "No known vulnerability in 1 packages")
    assert advisories.judge(report(SOUND, UNKNOWN), "") == (0, "No known vulnerability in 1 packages; 1 NOT checked")


@pytest.mark.parametrize(
    ("output", "errors"),
    [
        ("", "requests.exceptions.ConnectionError: Max retries exceeded"),
        (report(UNKNOWN, UNKNOWN), "No known vulnerabilities found"),
    ],
)
def test_a_source_that_does_not_answer_is_said_to_be_skipped(advisories: ModuleType, output: str, errors: str) -> None:
    code, words = advisories.judge(output, errors)
    assert code == 0
    assert words.startswith("SKIPPED")


def test_any_other_failure_is_one(advisories: ModuleType) -> None:
    assert advisories.judge("", "ERROR: invalid requirement") == (1, "pip-audit failed: ERROR: invalid requirement")


def test_the_embedded_servers_are_compared_with_known_advisories(advisories: ModuleType) -> None:
    code, words = advisories.judge_servers({"PostgreSQL": "18.6", "Valkey": "9.1.1"})
    assert code == 1
    assert "Valkey 9.1.1 lacks the fix for GHSA-fq2f-crmw-q97r, which 9.1.2 has" in words
    assert advisories.judge_servers({"PostgreSQL": "18.6", "Valkey": "9.1.2"}) == (
        0, "No known vulnerability in the embedded servers: PostgreSQL 18.6, Valkey 9.1.2",
    )  # fmt: skip
    assert advisories.judge_servers({}) == (0, "SKIPPED: no embedded server is installed")


# Plain words: a figure above its limit fails, with the places to look at.


@pytest.mark.parametrize(
    "text",
    [
        "a pair is no list",
        "the names stand in that file",
        "Print what it needs",
        "a key that nobody has",
        "wait so long",
        "the job goes on",
        "a folder of its own",
        "held against the judge",
        "the list, too",
    ],
)
def test_a_phrase_that_must_be_decoded_is_found(text: str) -> None:
    assert words.ODD.search(text)


@pytest.mark.parametrize(
    "text",
    [
        "a key that is no longer valid",
        "IR stands for retrieval",
        "Say what is the cause",
        "the job continues",
        "how long",
    ],
)
def test_a_plain_phrase_is_left_alone(text: str) -> None:
    assert not words.ODD.search(text)


@pytest.mark.parametrize(
    ("name", "named"), [("listed", True), ("_shown_rows", True), ("feed_queue", False), ("list", False)]
)
def test_functions_that_are_named_by_a_participle_are_found(name: str, named: bool) -> None:
    assert bool(words.PARTICIPLE.match(name)) == named


def test_a_figure_above_its_limit_is_reported_with_its_places() -> None:
    figures = words.Figures()
    figures.add("odd phrases", ["page.md:3: alike"], 1000, 1000)
    assert list(words.list_excesses(figures, {"odd phrases": 1.0})) == []
    (excess,) = words.list_excesses(figures, {"odd phrases": 0.5})
    assert "odd phrases: 1, and at most 0.5" in excess
    assert "page.md:3: alike" in excess
