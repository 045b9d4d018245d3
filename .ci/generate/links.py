"""Links between pages of docs/."""

import re
from functools import cache
from os.path import relpath
from pathlib import PurePosixPath

from shared.settings import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGE = re.compile(r"docs/([\w/-]+\.md)(?:#([\w-]+))?")


def linked(text: str, page: str) -> str:
    """`text` as it stands on `page` of docs/: every page that it names becomes a link, called by its title or
    heading."""

    def link(found: re.Match[str]) -> str:
        name, anchor = found[1], found[2]
        said = anchor.replace("-", " ") if anchor else _title(name)
        path = "" if name == page and anchor else relpath(name, PurePosixPath(page).parent)
        return f"[{said}]({path}{'#' + anchor if anchor else ''})"

    return PAGE.sub(link, text)


@cache
def _title(name: str) -> str:
    first, _, _ = (DOCS / name).read_text("utf-8").partition("\n")
    return first.removeprefix("# ")
