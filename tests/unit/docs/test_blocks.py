"""Tutorial and how-to pages are written so that every command of theirs can be run by a test, or says why not."""

import re

from shared.settings import REPOSITORY
from tests.docs.blocks import HOW_TO, TUTORIAL, blocks_of

GUIDES = [*TUTORIAL, *HOW_TO]
OTHERS = re.compile(r"^```(?:bash|shell|console|zsh)", re.MULTILINE)
INDENTED = re.compile(r"^\n {4}(?:\$ )?(?:mathrag|docker|curl|make|python|pip) ", re.MULTILINE)
EXCUSE = re.compile(r"^<!-- not run: ", re.MULTILINE)


def test_commands_are_fenced_so_that_they_are_run() -> None:
    texts = {str(page.relative_to((REPOSITORY / "docs"))): page.read_text("utf-8") for page in GUIDES}
    others = {page: found for page, text in texts.items() if (found := OTHERS.findall(text))}
    indented = {page: found for page, text in texts.items() if (found := INDENTED.findall(text))}
    assert others == {}
    assert indented == {}


def test_every_excuse_stands_above_a_block() -> None:
    written = {str(page.relative_to((REPOSITORY / "docs"))): len(EXCUSE.findall(page.read_text("utf-8"))) for page in GUIDES}
    excused = {str(page.relative_to((REPOSITORY / "docs"))): sum(bool(block.excuse) for block in blocks_of(page)) for page in GUIDES}
    assert {page: count for page, count in written.items() if count != excused[page]} == {}
