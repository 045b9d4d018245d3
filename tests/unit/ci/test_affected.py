from pathlib import Path

import grimp

from tests.unit.ci.scripts import load

affected = load("affected")


def find_tests(*files: str) -> list[str]:
    graph = grimp.ImportGraph()
    for importer, imported in (
        ("tests.unit.mathrag.stack.test_privacy", "mathrag.stack.privacy"),
        ("mathrag.stack.children", "mathrag.stack.privacy"),
        ("tests.unit.mathrag.stack.test_supervisor", "mathrag.stack.children"),
        ("tests.e2e.test_backup", "mathrag.stack.privacy"),
    ):
        graph.add_import(importer=importer, imported=imported)
    return affected.affected_tests(map(Path, files), graph)  # type: ignore[no-any-return]


def test_tests_that_import_a_changed_module_are_found_nearest_first() -> None:
    assert find_tests("mathrag/stack/privacy.py") == [
        "tests/unit/mathrag/stack/test_privacy.py",
        "tests/unit/mathrag/stack/test_supervisor.py",
    ]
    assert find_tests("mathrag/stack/children.py") == ["tests/unit/mathrag/stack/test_supervisor.py"]


def test_a_changed_test_is_found_and_one_that_is_gone_is_not() -> None:
    assert find_tests("tests/unit/ci/test_affected.py", "tests/unit/ci/test_gone.py", "README.md") == [
        "tests/unit/ci/test_affected.py"
    ]


def test_a_changed_conftest_affects_all_find_tests_its_folder() -> None:
    found = find_tests("tests/integration/pages/conftest.py")
    assert "tests/integration/pages/test_job.py" in found
    assert all(file.startswith("tests/integration/pages/test_") for file in found)
