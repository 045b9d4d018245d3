"""Pages from templates: their assets, and blocks that are computed."""

import base64
import gzip
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, cached_property
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup

from mathrag.formatting import format_accuracy, format_duration, format_headline
from mathrag.report_lines import WORDS
from shared.pages import formatting, lines
from shared.pages.figures import Figure, render_inline, write_figure

FOLDER = resources.files(__package__) / "assets"
HTMX, KATEX = "htmx-4.0.1", "katex-0.19.1"
TYPES = {
    ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}  # fmt: skip
"""Media types by suffix; files with another suffix are not served."""


class Asset(NamedTuple):
    """A file with the headers to send it."""

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
    """Return the file at a path below `/assets/`, or None if it does not exist."""
    _, _, name = path.partition("/")
    # The version of a library's folder is in its name, so its fonts may be asked for with any hash.
    return _load_assets().get(name)


@cache
def _load_assets() -> dict[str, Asset]:
    katex_files = [name for name in _list_files(FOLDER / "vendor" / KATEX, KATEX) if name[name.rfind(".") :] in TYPES]
    named = {name: _read_content(name) for name in ("style.css", "pages.js", "live.js", "icon.svg", *katex_files)}
    assets = {}
    for name, body in named.items():
        media = TYPES[name[name.rindex(".") :]]
        packed = None if media.startswith("font") else gzip.compress(body, 9, mtime=0)
        assets[name] = Asset(body, media, packed)
    return assets


def _read_content(name: str) -> bytes:
    if name == "style.css":
        return load_style().encode()
    if name == "pages.js":
        return load_script().encode()
    if name == "live.js":
        return load_live_script().encode()
    return (FOLDER / name if name == "icon.svg" else FOLDER / "vendor" / name).read_bytes()


def _list_files(folder: Traversable, path: str) -> list[str]:
    names: list[str] = []
    for each in folder.iterdir():
        inner = f"{path}/{each.name}"
        names += _list_files(each, inner) if each.is_dir() else [inner]
    return names


def _join_files(folder: str, suffix: str) -> str:
    parts = {each.name: each for each in (FOLDER / folder).iterdir() if each.name.endswith(suffix)}
    return "\n".join(parts[name].read_text("utf-8") for name in sorted(parts))


TEMPLATES = resources.files(__package__) / "templates"


class Pages:
    """Renders templates into pages: everything is escaped, and the security policy runs only our own scripts."""

    def render(self, template: str, file: Path, **values: Any) -> None:
        """Write one page of a report to `file`."""
        text = self.environment.get_template(template).render(**values)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8", errors="replace")

    def draw(self, figure: Figure, folder: Path) -> dict[str, Any]:
        """Write the files of a figure and return its data for the template."""
        write_figure(figure, folder)
        shown = render_inline(figure)
        return {
            "name": figure.name, "title": figure.title, "said": figure.notes, "caption": figure.caption,
            "svg": shown.wide, "narrow": shown.narrow,
        }  # fmt: skip

    @cached_property
    def environment(self) -> jinja2.Environment:
        """Make the environment of all templates, with the filters and values that they share."""
        made = jinja2.Environment(
            loader=jinja2.FunctionLoader(lambda name: (TEMPLATES / name).read_text("utf-8")),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        made.filters.update(
            accuracy=format_accuracy, duration=format_duration, pairs=format_pairs,
            number=format_number, verdict=format_verdict, when=format_time, ago=format_ago,
            address=format_query, visible=formatting.escape_visible, math=formatting.mark_math,
            formula=formatting.mark_formula, code=formatting.mark_code, value=formatting.format_value,
            finding=format_headline, why=lines.explain_flip, next_flip=lines.describe_next_flip,
        )  # fmt: skip
        made.globals.update(
            policy=make_security_policy, style=load_style(),
            filtering=(TEMPLATES / "frozen" / "script.js").read_text("utf-8"),
            typesetting=load_math_scripts(), asset=asset_path, KATEX=KATEX,
        )  # fmt: skip
        return made


def make_security_policy(style: str, scripts: Sequence[str]) -> str:
    """Return a Content-Security-Policy that loads nothing and allows only this style and these scripts."""
    run = " ".join(map(_hash_source, scripts)) or "'none'"
    return f"default-src 'none'; style-src {_hash_source(style)}; script-src {run}; base-uri 'none'; form-action 'none'"


def _hash_source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def format_query(query: Mapping[str, object]) -> str:
    """Return `query` as the query part of an address, without the values that are not set."""
    named = {name: value for name, value in query.items() if value is not False and value not in (None, "")}
    return f"?{urlencode(named)}" if named else ""


def format_pairs(values: Mapping[str, object]) -> str:
    """Return for example "correct 120, logic 50"; a nested value is shown as JSON."""
    return ", ".join(f"{name} {_format_one(value)}" for name, value in values.items())


def _format_one(value: object) -> str:
    match value:
        case None:
            return "not known"
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:.6g}"
        case dict() | list():
            return json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)


def format_number(value: float | None) -> str:
    """Format a value with three significant digits."""
    return "–" if value is None else f"{value:.3g}"


def format_time(instant: str | datetime | None) -> str:
    """Format an instant in UTC, to the second; an unknown one is empty."""
    known = datetime.fromisoformat(instant) if isinstance(instant, str) else instant
    return f"{known.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if known else ""


def format_ago(instant: str | datetime | None, now: datetime | None = None) -> Markup:
    """Mark an instant up as its distance from `now`, such as "5 min ago", with the full time as its title; an unknown
    one is empty. The pages' script keeps the words up to date.
    """
    if instant is None:
        return Markup()
    known = datetime.fromisoformat(instant) if isinstance(instant, str) else instant
    seconds = ((now or datetime.now(UTC)) - known).total_seconds()
    size, words = abs(seconds), "just now"
    if size >= LONG_AGO_S:
        words = f"{known.astimezone(UTC):%Y-%m-%d}"
    elif size >= 60:
        count, unit = next((int(size // each), unit) for unit, each in AGES.items() if size >= each)
        distance = f"{count} days" if unit == "day" and count > 1 else f"{count} {unit}"
        words = f"{distance} ago" if seconds > 0 else f"in {distance}"
    full = format_time(known)
    return Markup('<time datetime="%s" title="%s">%s</time>') % (full[:19].replace(" ", "T") + "Z", full, words)


AGES = {"day": 86_400, "h": 3600, "min": 60}
"""Units of a distance in time, with their length in seconds; the script has the same."""
LONG_AGO_S = 60 * 86_400
"""Distance from which on the day is shown."""


def format_verdict(value: bool | None) -> str:  # noqa: FBT001 - a verdict is what is put into words
    """Return "right", "wrong" or "none"."""
    return WORDS[value]


# Rewrite the parts of a page that are computed: the text between `<!-- NAME: computed -->` and `<!-- end -->`.

BLOCK = re.compile(r"(<!-- ([a-z0-9-]+): computed -->\n).*?(<!-- end -->)", re.DOTALL)


def rewrite_blocks(text: str, blocks: Mapping[str, str]) -> str:
    """Return the page with the content of every block replaced.

    Raises:
        KeyError: the page has a block that `blocks` has no content for.
    """
    return BLOCK.sub(lambda found: f"{found[1]}\n{blocks[found[2]]}\n\n{found[3]}", text)


def find_block_names(text: str) -> list[str]:
    """Return the names of the blocks of a page, in order."""
    return [name for _, name, _ in BLOCK.findall(text)]


def table(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table in Markdown."""
    lines_of_cells = [f"| {' | '.join(map(str, row))} |" for row in (header, *rows)]
    return "\n".join([lines_of_cells[0], "|---" * len(header) + "|", *lines_of_cells[1:]])
