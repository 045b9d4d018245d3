"""Print the test files that import what changed since the last commit on `main`, nearest first.

    python .ci/affected.py [BELOW]    only tests below this folder, such as tests/unit

On `main` itself these are the changes that are not committed, elsewhere also the branch's commits. Imports are followed
through any number of modules. A test that reads a file, or that takes from a `conftest.py`, is not found through them;
a changed `conftest.py` affects all tests of its folder.
"""

import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import grimp

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGES = ("mathrag", "services", "shared", "world", "bench", "tests")
RINGS = ("tests/unit", "tests/integration")


def main(arguments: list[str]) -> int:
    """Print the files, one a line; on standard error, what no import leads from."""
    sys.path.insert(0, str(REPOSITORY))  # `bench` and `tests` are not installed
    below = arguments[0] if arguments else ""
    changed = [Path(line) for line in changed_files()]
    graph = grimp.build_graph(*PACKAGES, cache_dir=str(REPOSITORY / ".cache" / "imports"))
    print("\n".join(file for file in affected_tests(changed, graph) if file.startswith(below)))  # noqa: T201
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
    found: dict[str, None] = {}
    distance = {module_of(file) for file in changed if file.suffix == ".py"}
    seen: set[str] = set()
    while distance:
        found |= dict.fromkeys(sorted(file for module in distance for file in tests_of(module)))
        seen |= distance
        known = distance & graph.modules
        distance = {each for module in known for each in graph.find_modules_that_directly_import(module)} - seen
    return list(found)


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
    sys.exit(main(sys.argv[1:]))
