"""Serves `/help`: the documentation of the repository, to which fields and messages link."""

import re
from functools import cache
from itertools import pairwise
from pathlib import Path

from fastapi import APIRouter, Response
from fastapi.responses import FileResponse
from markdown_it import MarkdownIt
from markdown_it.token import Token
from markupsafe import Markup

from mathrag.errors import NotFound
from services.orchestrator.web.page import Visitor, go_to, page
from shared.settings import REPOSITORY

router = APIRouter()
FOLDER = REPOSITORY / "docs"
FIRST = "index.md"
IMAGES = (".png", ".svg")


@page(router, "/help")
async def index() -> Response:
    """Leads to the first page of the documentation."""
    return go_to(f"/help/{FIRST}")


@page(router, "/help/{path:path}")
async def show(visit: Visitor, path: str) -> Response:
    """Shows a page of the documentation, or one of its pictures."""
    file = list_files().get(path)
    if file is None:
        raise NotFound(f"the documentation has no page {path[:200]!r}", hint=f"it begins at /help/{FIRST}")
    if file.suffix in IMAGES:
        return FileResponse(file)
    title, body = render(file)
    return visit.show("help/page.html", title=title, body=body, at=path, first=FIRST)


@cache
def list_files() -> dict[str, Path]:
    """Return the pages and pictures by their path below the folder; nothing else is served."""
    found = (file for file in FOLDER.rglob("*") if file.suffix in (".md", *IMAGES))
    return {file.relative_to(FOLDER).as_posix(): file for file in found}


@cache
def render(file: Path) -> tuple[str, Markup]:
    """Return the title and the HTML of a Markdown file. Relative links are kept unchanged: addresses follow the files.

    Each heading has an anchor, and each row of a table that begins with code, such as a parameter, has that as anchor.
    """
    parser = MarkdownIt("commonmark").enable("table")
    tokens = parser.parse(file.read_text("utf-8"))
    headings = [(token, _read_text(inside)) for token, inside in pairwise(tokens) if token.type == "heading_open"]
    cells = [
        (row, inside.children or []) for (row, _), (_, inside) in pairwise(pairwise(tokens)) if row.type == "tr_open"
    ]
    rows = [(row, cell[0].content) for row, cell in cells if cell and cell[0].type == "code_inline"]
    known = set[str]()
    for token, anchor in [*((token, make_anchor(heading)) for token, heading in headings), *rows]:
        if anchor not in known:
            token.attrSet("id", anchor)
            known.add(anchor)
    title = next((heading for token, heading in headings if token.tag == "h1"), file.stem)
    drawn = str(parser.renderer.render(tokens, parser.options, {}))
    # Tables scroll by themselves. Markdown requires a header row, so empty header cells become plain ones.
    wide = {"<table>": '<div class="wide"><table>', "</table>": "</table></div>", "<th></th>": "<td></td>"}
    for tag, replacement in wide.items():
        drawn = drawn.replace(tag, replacement)
    return title, Markup(drawn)  # noqa: S704 - our own files


def _read_text(inline: Token) -> str:
    return "".join(each.content for each in inline.children or () if each.type in ("text", "code_inline"))


def make_anchor(heading: str) -> str:
    """Return the anchor of a heading, by which links name it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")
