"""Pages that keep themselves up to date, also after their connection was lost."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.pages import world
from tests.pages.browser import Seen, looking
from tests.running import RunningStack, ended

SOON = 60_000
"""Milliseconds: a safety net."""


def test_a_job_that_comes_is_seen_and_so_is_its_end(seen: Seen, stack: RunningStack) -> None:
    page = seen.open("/")
    expect(page.locator("#jobs")).to_contain_text("No job runs")
    job = world.submit(stack, "appears", repeats=4, reuse="none")
    expect(page.locator("#jobs")).to_contain_text("appears", timeout=SOON)
    expect(page.locator("#lanes")).to_contain_text("world-judge", timeout=SOON)
    stack.wait(job, ended)
    expect(page.locator("#jobs")).to_contain_text("No job runs", timeout=SOON)


def test_a_page_that_lost_its_connection_is_right_again(browser: Browser, stack: RunningStack) -> None:
    with looking(browser, stack.url) as window:
        page = window.open("/")
        expect(page.locator("#jobs")).to_contain_text("No job runs")
        page.context.set_offline(True)
        stack.restart("orchestrator")
        job = world.submit(stack, "meanwhile", repeats=6, reuse="none")
        page.context.set_offline(False)
        expect(page.locator("#jobs")).to_contain_text("meanwhile", timeout=SOON)
        expect(page.locator("#jobs tr[data-row]")).to_have_count(1)
        stack.wait(job, ended)
        expect(page.locator("#jobs")).to_contain_text("No job runs", timeout=SOON)


@pytest.mark.parametrize("path", ["/", "/jobs"])
def test_pages_are_small(seen: Seen, stack: RunningStack, path: str) -> None:
    session = seen.page.context.new_cdp_session(seen.page)
    session.send("Network.enable")
    sizes: list[int] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    page = seen.open(path)
    assert re.search("MathRAG", page.title())
    assert 0 < sum(sizes) <= 100_000
