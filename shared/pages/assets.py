"""Serve the style sheet, the scripts and the vendored libraries of the pages, under paths with their content's hash."""

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
"""Media types by suffix; files with another suffix are not served."""


class Asset(NamedTuple):
    """A file with what is needed to send it."""

    body: bytes
    media: str
    packed: bytes | None
    """The body compressed by gzip; None for fonts, which are compressed already."""


@cache
def load_style() -> str:
    """Return the style sheet: its parts joined in alphabetical order."""
    return _join_files("style", ".css")


@cache
def load_script() -> str:
    """Return the pages' own script (keys, tables, mathematics, labels); every page also works without it."""
    return _join_files("scripts", ".js")


@cache
def load_live_script() -> str:
    """Return htmx and its extension for server-sent events as one file.

    htmx starts as soon as it is loaded, so its extension must not arrive later.
    """
    return "\n".join((FOLDER / "vendor" / HTMX / name).read_text("utf-8") for name in ("htmx.min.js", "hx-sse.min.js"))


@cache
def load_math_scripts() -> list[str]:
    """Return the scripts that typeset mathematics in a page that is a single file: KaTeX, then its caller."""
    library = (FOLDER / "vendor" / KATEX / "katex.min.js").read_text("utf-8")
    return [library, (FOLDER / "scripts" / "2-mathematics.js").read_text("utf-8")]


@cache
def asset_path(name: str) -> str:
    """Return the path of `style.css`, `pages.js`, `live.js`, or a file such as `katex-0.19.1/katex.min.js`.

    The path contains the hash of the content, so that browsers may cache a file for ever and load a new one at once.
    """
    return f"/assets/{hashlib.sha256(_read_content(name)).hexdigest()[:12]}/{name}"


def find_asset(path: str) -> Asset | None:
    """Return the file at a path below `/assets/`, or None if there is none."""
    _, _, name = path.partition("/")
    # The version of a library's folder is in its name, so its fonts may be asked for with any hash.
    return _load_assets().get(name)


@cache
def _load_assets() -> dict[str, Asset]:
    named = {
        name: _read_content(name) for name in ("style.css", "pages.js", "live.js", "icon.svg", *_list_katex_files())
    }
    return {name: _make_asset(name, body) for name, body in named.items()}


def _make_asset(name: str, body: bytes) -> Asset:
    media = TYPES[name[name.rindex(".") :]]
    return Asset(body, media, None if media.startswith("font") else gzip.compress(body, 9, mtime=0))


def _read_content(name: str) -> bytes:
    if name == "style.css":
        return load_style().encode()
    if name == "pages.js":
        return load_script().encode()
    if name == "live.js":
        return load_live_script().encode()
    return (FOLDER / name if name == "icon.svg" else FOLDER / "vendor" / name).read_bytes()


def _list_katex_files() -> list[str]:
    """List the files of KaTeX that are served: no licence, no checksums."""
    return [name for name in _list_files(FOLDER / "vendor" / KATEX, KATEX) if name[name.rfind(".") :] in TYPES]


def _list_files(folder: Traversable, path: str) -> list[str]:
    names: list[str] = []
    for each in folder.iterdir():
        inner = f"{path}/{each.name}"
        names += _list_files(each, inner) if each.is_dir() else [inner]
    return names


def _join_files(folder: str, suffix: str) -> str:
    parts = sorted(
        (each for each in (FOLDER / folder).iterdir() if each.name.endswith(suffix)), key=lambda each: each.name
    )
    return "\n".join(part.read_text("utf-8") for part in parts)
