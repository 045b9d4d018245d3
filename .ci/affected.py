"""Print the test files that concern what changed since the last commit on `main`.

    python .ci/affected.py [--all] [BELOW]    only tests below this folder, such as tests/unit

For each changed file these are the tests that are named after it and those that are the fewest imports away. They take
seconds for most files. With `--all` they are all tests that import it through any number of modules, nearest first. For
`shared/settings.py` that is most tests.

A file has changed if its change is not committed, or if a commit of the current branch changed it. A changed
`conftest.py` affects all tests of its folder. A test that only reads a file is not found.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

import grimp

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("mathrag", "mathrag_gate", "services", "shared", "tools", "tests")
RINGS = ("tests/unit", "tests/integration")


def main() -> int:
    """Print the files, one a line; on standard error, what no import leads from."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true")
    parser.add_argument("below", nargs="?", default="")
    options = parser.parse_args()
    sys.path.insert(0, str(REPOSITORY))  # `tools` and `tests` are not installed
    changed = [Path(line) for line in changed_files()]
    graph = grimp.build_graph(*PACKAGES, cache_dir=str(REPOSITORY / ".cache" / "imports"))
    found = affected_tests(changed, graph) if options.all else nearest_tests(changed, graph)
    print("\n".join(file for file in found if file.startswith(options.below)))  # noqa: T201
    others = [str(file) for file in changed if file.suffix != ".py"]
    if others:
        print(f"not followed, because no module imports them: {', '.join(others)}", file=sys.stderr)  # noqa: T201
    return 0


def changed_files() -> list[str]:
    """Return the files that differ from the last commit that this work shares with `main`, new ones included."""
    base = git("merge-base", "HEAD", "main")[0]
    return [*git("diff", "--name-only", "--no-renames", base), *git("ls-files", "--others", "--exclude-standard")]


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True)  # noqa: S603, S607
    return done.stdout.splitlines()


def affected_tests(changed: Iterable[Path], graph: grimp.ImportGraph) -> list[str]:
    """Return the test files of both rings that changed or that import, directly or not, a module that did."""
    modules = {module_of(file) for file in changed if file.suffix == ".py"}
    return list(dict.fromkeys(chain.from_iterable(map(tests_of_all, importers_by_distance(modules, graph)))))


def nearest_tests(changed: Iterable[Path], graph: grimp.ImportGraph) -> list[str]:
    """Return for each changed file the tests named after it and those that are the fewest imports away."""
    found: dict[str, None] = {}
    for file in changed:
        if file.suffix == ".py":
            found |= dict.fromkeys([*tests_named_after(file), *tests_nearest_to(module_of(file), graph)])
    return list(found)


def tests_named_after(file: Path) -> list[str]:
    """Return `tests/unit/mathrag/cli/test_job.py` and `test_job_*.py` for `mathrag/cli/job.py`, a command that no test
    imports, because it is loaded when it is called.
    """
    folder = REPOSITORY / "tests" / "unit" / file.parent
    named = {*folder.glob(f"test_{file.stem}.py"), *folder.glob(f"test_{file.stem}_*.py")}
    return sorted(each.relative_to(REPOSITORY).as_posix() for each in named)


def tests_nearest_to(module: str, graph: grimp.ImportGraph) -> list[str]:
    """Return the tests the fewest imports away from a module; integration tests only where no unit test is as near.

    A `conftest.py` that imports it does not make a whole folder its tests.
    """
    for modules in importers_by_distance({module}, graph):
        tests = tests_of_all(each for each in modules if each == module or not each.endswith(".conftest"))
        if tests:
            return [test for test in tests if test.startswith("tests/unit")] or tests
    return []


def importers_by_distance(modules: set[str], graph: grimp.ImportGraph) -> Iterator[set[str]]:
    """Yield the modules themselves, then what imports them, then what imports those, each module once."""
    seen: set[str] = set()
    while modules:
        yield modules
        seen |= modules
        known = modules & graph.modules
        modules = {each for module in known for each in graph.find_modules_that_directly_import(module)} - seen


def tests_of_all(modules: Iterable[str]) -> list[str]:
    return sorted(chain.from_iterable(map(tests_of, modules)))


def module_of(file: Path) -> str:
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tests_of(module: str) -> Iterator[str]:
    """Yield the test files that a module of tests is or, if it is a `conftest.py`, has beside and below it."""
    file = Path(*module.split(".")).with_suffix(".py")
    if not file.as_posix().startswith(RINGS) or not (REPOSITORY / file).exists():
        return
    if file.name == "conftest.py":
        yield from (each.relative_to(REPOSITORY).as_posix() for each in (REPOSITORY / file.parent).rglob("test_*.py"))
    elif file.name.startswith("test_"):
        yield file.as_posix()


if __name__ == "__main__":
    sys.exit(main())
