"""Check the built site: every link leads to a page and an anchor that are there, and nothing is loaded from elsewhere.

    python .ci/site_links.py

Zensical checks links between Markdown pages, but no images, no HTML, and nothing that a plugin has written.
"""

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).resolve().parents[1] / "build" / "site"
LOADED = {"script", "img", "link", "iframe", "source"}
"""Elements whose address the browser loads by itself."""


class Page(HTMLParser):
    """Anchors of a page, and all that it names: element and address."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.named: list[tuple[str, str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element's anchor and address."""
        given = dict(attrs)
        self.anchors.update(filter(None, (given.get("id"), given.get("name"))))
        address = given.get("href") or given.get("src")
        if address and given.get("rel") != "canonical":
            self.named.append((tag, address))


@cache
def _read(file: Path) -> Page:
    return Page(file.read_text("utf-8"))


def problem(file: Path, tag: str, address: str) -> str | None:
    """Return what is wrong with an address on the page `file`; None if nothing is."""
    url = urlsplit(address)
    if url.scheme or url.netloc:
        return "is loaded from elsewhere" if tag in LOADED and url.scheme != "data" else None
    target = (file.parent / unquote(url.path)).resolve() if url.path else file
    if not target.is_file():
        return "leads nowhere"
    anchor = unquote(url.fragment)
    is_missing = anchor and target.suffix == ".html" and anchor not in _read(target).anchors
    return "names an anchor that is not there" if is_missing and not anchor.startswith("__") else None


def main() -> int:
    """Print every dead link, and return the exit code."""
    # The page for addresses that a server does not know names everything from the server's root.
    pages = [file for file in SITE.rglob("*.html") if file.name != "404.html"]
    dead = [
        f"{file.relative_to(SITE)}: {address} {said}"
        for file in sorted(pages)
        for tag, address in _read(file).named
        if (said := problem(file, tag, address))
    ]
    print(*dead, f"{len(pages)} pages, {len(dead)} dead links", sep="\n")  # noqa: T201 - what a person reads
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
