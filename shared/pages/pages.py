"""Render pages from templates: everything is escaped, and the security policy runs only our own scripts."""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2

from shared.pages import assets, flips, formatting, replies, texts
from shared.pages.figures import Figure, render_inline, write_figure

TEMPLATES = resources.files(__package__) / "templates"


class Pages:
    """Renders templates into pages."""

    def render(self, template: str, file: Path, **values: Any) -> None:
        """Write one page of a report to `file`."""
        text = self.environment.get_template(template).render(**values)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8", errors="replace")

    def draw(self, figure: Figure, folder: Path) -> dict[str, Any]:
        """Write the files of a figure and return what the template shows of it."""
        write_figure(figure, folder)
        shown = render_inline(figure)
        return {
            "name": figure.name, "title": figure.title, "said": shown.said, "caption": figure.caption,
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
            accuracy=formatting.format_accuracy, duration=formatting.format_duration, pairs=format_pairs,
            number=format_number, verdict=format_verdict, when=format_time,
            address=format_query, visible=texts.escape_visible, math=texts.mark_math, formula=texts.mark_formula,
            code=texts.mark_code, value=texts.format_value, finding=formatting.format_headline, why=flips.explain_flip,
            next_flip=flips.describe_next_flip,
        )  # fmt: skip
        made.globals.update(
            policy=make_security_policy, style=assets.load_style(),
            filtering=(TEMPLATES / "frozen" / "script.js").read_text("utf-8"),
            typesetting=assets.load_math_scripts(), asset=assets.asset_path, KATEX=assets.KATEX,
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
    """Return for example "correct 120, logic 50"."""
    return ", ".join(f"{name} {_format_pair_value(value)}" for name, value in values.items())


def _format_pair_value(value: object) -> object:
    if value is None:
        return "not known"
    return f"{value:.6g}" if isinstance(value, float) else value


def format_number(value: float | None) -> str:
    """Format a value with three significant digits."""
    return "–" if value is None else f"{value:.3g}"


def format_time(instant: str | datetime | None) -> str:
    """Format an instant in UTC, to the second; an unknown one is empty."""
    known = datetime.fromisoformat(instant) if isinstance(instant, str) else instant
    return f"{known.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if known else ""


def format_verdict(value: bool | None) -> str:  # noqa: FBT001 - a verdict is what is put into words
    """Return "right", "wrong" or "none"."""
    return replies.WORDS[value]
