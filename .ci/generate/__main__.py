"""Write what repeats the code: schemas, the example of mathrag.yaml, tables of the documentation.

    python .ci/generate            writes every file anew
    python .ci/generate --check    names the files that are not as the code says, and exits with 1

It is for work on the repository alone (`make generate`, `make lint`), so it is not in the wheel.
"""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import answers
import operations
import reference
import settings_example
import tables

from mathrag_gate.cli import config
from shared import experiments
from shared.pages import pages
from shared.settings import REPOSITORY

PYTHON = REPOSITORY / "docs" / "reference" / "python.md"
GUIDE = REPOSITORY / "docs" / "how-to" / "plugins.md"


def list_files() -> Iterator[tuple[Path, str]]:
    """Yield every file that is generated, with the text that it should have."""
    yield REPOSITORY / "config-schema.json", config.schema() + "\n"
    yield REPOSITORY / "experiment-schema.json", experiments.schema() + "\n"
    yield REPOSITORY / "mathrag.example.yaml", settings_example.example()
    yield REPOSITORY / "mathrag" / "client" / "answers.py", answers.answers()
    for name, text in reference.pages():
        yield REPOSITORY / "docs" / name, text
    yield PYTHON, pages.rewrite_blocks(PYTHON.read_text("utf-8"), {"operations": operations.operations()})
    yield GUIDE, pages.rewrite_blocks(GUIDE.read_text("utf-8"), {"guide": tables.guide()})


def main(arguments: list[str]) -> int:
    """Write or check every file, and return the exit code."""
    check = "--check" in arguments
    stale = [(file, text) for file, text in list_files() if not file.exists() or file.read_text("utf-8") != text]
    for file, text in stale:
        if not check:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
        words = "is not as the code says: make generate" if check else "is written anew"
        print(f"{file.relative_to(REPOSITORY)} {words}")  # noqa: T201 - what a person reads
    if not check and any(file.name == "answers.py" for file, _ in stale):  # pages say what it has, as it was imported
        return subprocess.run([sys.executable, *sys.argv], check=False).returncode  # noqa: S603 - this program
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
