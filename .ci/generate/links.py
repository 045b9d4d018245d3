"""Links between pages of docs/."""

import re
from functools import cache
from os.path import relpath
from pathlib import PurePosixPath

from shared.settings import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGE = re.compile(r"docs/([\w/-]+\.md)(?:#([\w-]+))?")


def link_pages(text: str, page: str) -> str:
    """Return `text` for `page` of docs/, with a link, called by title or heading, for every page that it names."""

    def link(found: re.Match[str]) -> str:
        name, anchor = found[1], found[2]
        words = anchor.replace("-", " ") if anchor else _title(name)
        path = "" if name == page and anchor else relpath(name, PurePosixPath(page).parent)
        return f"[{words}]({path}{'#' + anchor if anchor else ''})"

    return PAGE.sub(link, text)


@cache
def _title(name: str) -> str:
    first, _, _ = (DOCS / name).read_text("utf-8").partition("\n")
    return first.removeprefix("# ")
