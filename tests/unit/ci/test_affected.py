from pathlib import Path

import grimp

from tests.unit.ci.scripts import load

affected = load("affected")
PAGES_CONFTEST = "tests/integration/pages/conftest.py"

GRAPH = grimp.ImportGraph()
for importer, imported in (
    ("tests.unit.mathrag.stack.test_privacy", "mathrag.stack.postgres"),
    ("mathrag.stack.supervisor", "mathrag.stack.postgres"),
    ("tests.unit.mathrag.stack.test_supervisor", "mathrag.stack.supervisor"),
    ("tests.e2e.test_backup", "mathrag.stack.postgres"),
    ("tests.unit.conftest", "mathrag.client.client"),
    ("tests.integration.test_labels_api", "shared.storage.labels"),
    ("services.orchestrator.reports.results", "shared.storage.labels"),
    ("tests.unit.services.orchestrator.reports.test_report", "services.orchestrator.reports.results"),
    ("tests.integration.test_audit", "shared.storage.provenance"),
    ("tests.unit.shared.rag.test_fusion", "shared.storage.provenance"),
):
    GRAPH.add_import(importer=importer, imported=imported)


def find_tests(*files: str) -> list[str]:
    return affected.affected_tests(map(Path, files), GRAPH)  # type: ignore[no-any-return]


def find_nearest_tests(*files: str) -> list[str]:
    return affected.nearest_tests(map(Path, files), GRAPH)  # type: ignore[no-any-return]


def test_all_tests_that_import_a_changed_module_are_found_nearest_first() -> None:
    assert find_tests("mathrag/stack/postgres.py") == [
        "tests/unit/mathrag/stack/test_privacy.py",
        "tests/unit/mathrag/stack/test_supervisor.py",
    ]
    assert find_tests("mathrag/stack/supervisor.py") == ["tests/unit/mathrag/stack/test_supervisor.py"]


def test_the_nearest_tests_are_those_fewest_imports_away_from_each_changed_file() -> None:
    assert find_nearest_tests("mathrag/stack/postgres.py") == ["tests/unit/mathrag/stack/test_privacy.py"]
    assert find_nearest_tests("mathrag/stack/postgres.py", "shared/storage/provenance.py") == [
        "tests/unit/mathrag/stack/test_privacy.py",
        "tests/unit/shared/rag/test_fusion.py",
    ]


def test_integration_tests_are_the_nearest_where_no_unit_test_is_as_near() -> None:
    assert find_nearest_tests("shared/storage/labels.py") == ["tests/integration/test_labels_api.py"]
    assert find_nearest_tests("shared/storage/provenance.py") == ["tests/unit/shared/rag/test_fusion.py"]


def test_a_command_has_the_tests_that_are_named_after_it() -> None:
    assert find_nearest_tests("mathrag/cli/grade.py") == ["tests/unit/mathrag/cli/test_grade.py"]


def test_a_conftest_that_imports_a_module_does_not_make_its_whole_folder_the_nearest_tests() -> None:
    assert find_nearest_tests("mathrag/client/client.py") == []


def test_a_changed_test_is_found_and_one_that_is_gone_is_not() -> None:
    assert find_tests("tests/unit/ci/test_affected.py", "tests/unit/ci/test_gone.py", "README.md") == [
        "tests/unit/ci/test_affected.py"
    ]


def test_a_changed_conftest_affects_all_tests_of_its_folder() -> None:
    for found in (find_tests(PAGES_CONFTEST), find_nearest_tests(PAGES_CONFTEST)):
        assert "tests/integration/pages/test_job.py" in found
        assert all(file.startswith("tests/integration/pages/test_") for file in found)
