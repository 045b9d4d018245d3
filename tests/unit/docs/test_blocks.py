"""Tutorial and how-to pages are written so that every command of theirs can be run by a test, or says why not."""

import re
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, HOW_TO, TUTORIAL, blocks_of

PAGES = [*TUTORIAL, *HOW_TO]
OTHERS = re.compile(r"^```(?:bash|shell|console|zsh)", re.MULTILINE)
INDENTED = re.compile(r"^\n {4}(?:\$ )?(?:mathrag|docker|curl|make|python|pip) ", re.MULTILINE)
EXCUSE = re.compile(r"^<!-- not run: ", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_commands_are_fenced_so_that_they_are_run(page: Path) -> None:
    """As `sh`: what is indented, or fenced as another shell, no test would find."""
    text = page.read_text("utf-8")
    assert not OTHERS.findall(text)
    assert not INDENTED.findall(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(DOCS)))
def test_every_excuse_stands_above_a_block(page: Path) -> None:
    """One that stands elsewhere would excuse nothing."""
    excused = [block for block in blocks_of(page) if block.excuse]
    assert len(EXCUSE.findall(page.read_text("utf-8"))) == len(excused)
