"""Command blocks and files of a page: what is run, and what is not, with the reason that the page gives.

A block is fenced as `sh`; above one that cannot be run stands `<!-- not run: REASON -->`, which is not on the site.
A file is fenced with `title="NAME"`, and lies in the folder where the commands are run.
"""

import re
from pathlib import Path
from typing import NamedTuple

from shared.settings import REPOSITORY

DOCS = REPOSITORY / "docs"
TUTORIAL = sorted((DOCS / "tutorial").glob("*.md"))
HOW_TO = sorted((DOCS / "how-to").glob("*.md"))
BLOCK = re.compile(r"(?:^<!-- not run: (.+?) -->\n\n?)?^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


FILE = re.compile(r"^```\w+ title=\"([^\"]+)\"\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """Commands that stand together on a page."""

    line: int
    """Line of the page on which the fence opens, from 1."""
    commands: str
    excuse: str | None
    """Why they are not run; None: they are."""


def blocks_of(page: Path) -> list[Block]:
    """Every command block of `page`, in its order."""
    text = page.read_text("utf-8")
    return [Block(text.count("\n", 0, found.start(2)), found[2], found[1]) for found in BLOCK.finditer(text)]


def files_of(page: Path) -> dict[str, str]:
    """Every file that `page` shows, by name: fenced, with a `title`."""
    return dict(FILE.findall(page.read_text("utf-8")))
