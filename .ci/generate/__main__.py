"""Writes what repeats the code: schemas, the example of mathrag.yaml, tables of the documentation.

    python .ci/generate            writes every file anew
    python .ci/generate --check    names the files that are not as the code says, and exits with 1

It stands here because it is for work on the repository alone (`make generate`, `make lint`); the wheel needs it not.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import settings_example
import tables

from mathrag.cli import config
from shared.contracts import experiments
from shared.pages import blocks
from shared.settings import REPOSITORY

PAGES = {
    "docs/api.md": tables.api,
    "docs/operations.md": tables.operations,
    "docs/pipelines.md": tables.pipelines,
}
"""Pages with computed blocks, and what computes them."""


def generated() -> Iterator[tuple[Path, str]]:
    """Every file that is generated, with the text that it should have."""
    yield REPOSITORY / "config-schema.json", config.schema() + "\n"
    yield REPOSITORY / "experiment-schema.json", experiments.schema() + "\n"
    yield REPOSITORY / "mathrag.example.yaml", settings_example.example()
    for name, computed in PAGES.items():
        page = REPOSITORY / name
        yield page, blocks.regenerated(page.read_text("utf-8"), computed())


def main(arguments: list[str]) -> int:
    """Write or check every file; returns the exit code."""
    check = "--check" in arguments
    stale = [(file, text) for file, text in generated() if file.read_text("utf-8") != text]
    for file, text in stale:
        if not check:
            file.write_text(text, "utf-8")
        words = "is not as the code says: make generate" if check else "is written anew"
        print(f"{file.relative_to(REPOSITORY)} {words}")  # noqa: T201 - what a person reads
    return 1 if stale and check else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
