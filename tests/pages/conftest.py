"""A stack with something on every page, and a real Chromium to look at it."""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.pages import world
from tests.pages.browser import Seen, looking
from tests.running import RunningStack, running_stack

CHROMIUM = shutil.which("chromium")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/pages/" in item.path.as_posix():
            item.add_marker(pytest.mark.pages)
            if CHROMIUM is None:
                item.add_marker(pytest.mark.skip(reason="no `chromium` on this machine"))


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("pages")
    with running_stack(folder / "data") as running:
        world.furnish(running, folder / "world")
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield browser
        browser.close()


@pytest.fixture
def seen(browser: Browser, stack: RunningStack) -> Iterator[Seen]:
    with looking(browser, stack.url) as window:
        yield window
        assert window.wrong == []
