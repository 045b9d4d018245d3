"""Every command block of the tutorial and of the how-to pages runs as it stands there."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.blocks import DOCS, HOW_TO, TUTORIAL, blocks_of
from tests.docs.conftest import Reader

pytestmark = pytest.mark.docs

RUN = [page for page in HOW_TO if any(not block.excuse for block in blocks_of(page))]
EXCUSED = [
    pytest.param(block.excuse, id=f"{page.relative_to(DOCS)}:{block.line}")
    for page in [*TUTORIAL, *HOW_TO]
    for block in blocks_of(page)
    if block.excuse
]


def test_the_tutorial_runs_from_an_empty_folder(read_tutorial: Callable[[], None]) -> None:
    read_tutorial()


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(reader: Reader, page: Path) -> None:
    reader.read(page)


@pytest.mark.parametrize("excuse", EXCUSED)
def test_what_is_not_run_says_why(excuse: str, request: pytest.FixtureRequest) -> None:
    pytest.skip(f"{request.node.callspec.id}: {excuse}")
