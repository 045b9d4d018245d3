"""A real browser, and what it says about a page."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Response

FOLDER = Path(__file__).parent
SCREENSHOTS = FOLDER.parents[1] / "build" / "screenshots"
TOO_WIDE = """() => [...document.querySelectorAll('main *')].filter(
    (e) => e.getBoundingClientRect().right > innerWidth + 1 && e.getBoundingClientRect().width > 0
        && !e.closest('.wide, .visually-hidden, .katex, svg')).map((e) => e.outerHTML.slice(0, 120))"""
"""Elements that stick out of the window; what scrolls by itself may be wider."""


class Seen:
    """A page in a browser, with all that went wrong on it."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.wrong: list[str] = []
        self._base = base
        page.on("console", self._note_console)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("response", self._note_response)

    def open(self, path: str) -> Page:
        """Go to a page of the service."""
        self.page.goto(f"{self._base}{path}", wait_until="load")
        return self.page

    def too_wide(self) -> list[str]:
        """What sticks out at the right; the page itself never scrolls sideways."""
        found: list[str] = self.page.evaluate(TOO_WIDE)
        scrolls = self.page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        return [*found[:3], *(["the page scrolls sideways"] if scrolls else [])]

    def misplaced(self) -> list[str]:
        """Texts that are broken within a word, stick out of their box or lie on another, folded ones included."""
        self.page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        # As high as the page, so that nothing that keeps to an edge of the window lies on something else.
        width, height = self.page.evaluate("[innerWidth, document.documentElement.scrollHeight]")
        self.page.set_viewport_size({"width": width, "height": height})
        found: list[str] = self.page.evaluate((FOLDER / "misplaced.js").read_text("utf-8").partition("\n")[2])
        return found

    def unworded(self) -> list[str]:
        """Values of Python that no page words as such; code may have them."""
        words = self.page.locator("main").evaluate(
            "(main) => { const copy = main.cloneNode(true);"
            " copy.querySelectorAll('pre, code').forEach((each) => each.remove()); return copy.textContent; }"
        )
        return re.findall(r".{0,40}\b(?:None|True|False)\b.{0,20}", words)

    def inaccessible(self) -> list[str]:
        """What axe-core finds."""
        found: list[dict[str, Any]] = Axe().run(self.page).response["violations"]
        return [f"{each['id']}: {[node['html'][:120] for node in each['nodes'][:3]]}" for each in found]

    def shot(self, name: str) -> None:
        """Keep a picture of it, to be looked at."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)

    def _note_console(self, message: ConsoleMessage) -> None:
        self.wrong.append(f"{message.type}: {message.text}")

    def _note_response(self, response: Response) -> None:
        if response.status >= 400:
            self.wrong.append(f"{response.status} {response.url}")
        if urlsplit(response.url).netloc != urlsplit(self._base).netloc:
            self.wrong.append(f"from elsewhere: {response.url}")


@contextmanager
def looking(browser: Browser, base: str, **options: Any) -> Iterator[Seen]:
    """A fresh window; `options` are those of Playwright's `new_context`."""
    context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
    try:
        yield Seen(context.new_page(), base)
    finally:
        context.close()
