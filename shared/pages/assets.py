"""Style sheet, scripts and vendored libraries of the pages: read once, named by their content."""

import gzip
import hashlib
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

FOLDER = resources.files(__package__) / "assets"
HTMX, KATEX = "htmx-4.0.1", "katex-0.19.1"
TYPES = {
    ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}  # fmt: skip
"""By suffix; nothing else in the folder is served."""


class Asset(NamedTuple):
    """A file as it is sent."""

    body: bytes
    media: str
    packed: bytes | None
    """Compressed by gzip; None for what is compressed already."""


@cache
def style() -> str:
    """The one style sheet, from its parts in alphabetical order."""
    return _joined("style", ".css")


@cache
def script() -> str:
    """What the pages' own scripts do: keys and tables; pages are complete without it."""
    return _joined("scripts", ".js")


@cache
def live() -> str:
    """htmx and its extension for events, in one file: htmx starts as soon as it can, whether the extension is there."""
    return "\n".join((FOLDER / "vendor" / HTMX / name).read_text("utf-8") for name in ("htmx.min.js", "hx-sse.min.js"))


@cache
def typesetting() -> list[str]:
    """The scripts that typeset mathematics in a page that is one file: the library, then what calls it."""
    library = (FOLDER / "vendor" / KATEX / "katex.min.js").read_text("utf-8")
    return [library, (FOLDER / "scripts" / "2-mathematics.js").read_text("utf-8")]


@cache
def address(name: str) -> str:
    """Where a page finds `style.css`, `pages.js`, `live.js`, or a file such as `katex-0.19.1/katex.min.js`.

    The content's hash stands in it, so that browsers keep the file and still see a new one at once.
    """
    return f"/assets/{hashlib.sha256(_content(name)).hexdigest()[:12]}/{name}"


def find(path: str) -> Asset | None:
    """The file at an address below `/assets/`; None: there is none."""
    _, _, name = path.partition("/")
    # The version of a library's folder is in its name, so its fonts may be asked for with any hash.
    return _files().get(name)


@cache
def _files() -> dict[str, Asset]:
    named = {name: _content(name) for name in ("style.css", "pages.js", "live.js", "icon.svg", *_vendored())}
    return {name: _asset(name, body) for name, body in named.items()}


def _asset(name: str, body: bytes) -> Asset:
    media = TYPES[name[name.rindex(".") :]]
    return Asset(body, media, None if media.startswith("font") else gzip.compress(body, 9, mtime=0))


def _content(name: str) -> bytes:
    if name == "style.css":
        return style().encode()
    if name == "pages.js":
        return script().encode()
    if name == "live.js":
        return live().encode()
    return (FOLDER / name if name == "icon.svg" else FOLDER / "vendor" / name).read_bytes()


def _vendored() -> list[str]:
    """Names of what is served of KaTeX's folder: no licence, no checksums."""
    return [name for name in _names(FOLDER / "vendor" / KATEX, KATEX) if name[name.rfind(".") :] in TYPES]


def _names(folder: Traversable, path: str) -> list[str]:
    names: list[str] = []
    for each in folder.iterdir():
        inner = f"{path}/{each.name}"
        names += _names(each, inner) if each.is_dir() else [inner]
    return names


def _joined(folder: str, suffix: str) -> str:
    parts = sorted(
        (each for each in (FOLDER / folder).iterdir() if each.name.endswith(suffix)), key=lambda each: each.name
    )
    return "\n".join(part.read_text("utf-8") for part in parts)
