"""Pages from templates: everything is escaped, and a strict policy runs nothing but our own script."""

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

from shared.pages import assets, flips, texts, words
from shared.pages.figures import Figure, inline, write

TEMPLATES = resources.files(__package__) / "templates"


class Pages:
    """Draws pages."""

    def render(self, template: str, file: Path, **values: Any) -> None:
        """One page of a report, as a file."""
        text = self.environment.get_template(template).render(**values)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8", errors="replace")

    def drawn(self, figure: Figure, folder: Path) -> dict[str, Any]:
        """Write a figure's files; what a page needs to show it."""
        write(figure, folder)
        shown = inline(figure)
        return {
            "name": figure.name, "title": figure.title, "said": shown.said, "caption": figure.caption,
            "svg": shown.wide, "narrow": shown.narrow,
        }  # fmt: skip

    @cached_property
    def environment(self) -> jinja2.Environment:
        """Every template, with what they all may use."""
        made = jinja2.Environment(
            loader=jinja2.FunctionLoader(lambda name: (TEMPLATES / name).read_text("utf-8")),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        made.filters.update(
            accuracy=words.accuracy, duration=words.duration, pairs=pairs, number=number, verdict=verdict, when=when,
            address=address, visible=texts.visible, math=texts.math, formula=texts.formula,
            code=texts.code, value=texts.value, finding=words.finding, why=flips.why,
            next_flip=flips.next_in_words,
        )  # fmt: skip
        made.globals.update(
            policy=policy, style=assets.style(), filtering=(TEMPLATES / "frozen" / "script.js").read_text("utf-8"),
            typesetting=assets.typesetting(), asset=assets.address, KATEX=assets.KATEX,
        )  # fmt: skip
        return made


def policy(style: str, scripts: Sequence[str]) -> str:
    """Nothing is loaded from anywhere, and only this style and these scripts count, whatever a text holds."""
    run = " ".join(map(_source, scripts)) or "'none'"
    return f"default-src 'none'; style-src {_source(style)}; script-src {run}; base-uri 'none'; form-action 'none'"


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def address(query: Mapping[str, object]) -> str:
    """`query` as the end of an address, without what is not set."""
    named = {name: value for name, value in query.items() if value is not False and value not in (None, "")}
    return f"?{urlencode(named)}" if named else ""


def pairs(values: Mapping[str, object]) -> str:
    """Such as "correct 120, logic 50"."""
    return ", ".join(f"{name} {_said(value)}" for name, value in values.items())


def _said(value: object) -> object:
    if value is None:
        return "not known"
    return f"{value:.6g}" if isinstance(value, float) else value


def number(value: float | None) -> str:
    """Three digits."""
    return "–" if value is None else f"{value:.3g}"


def when(instant: str | datetime | None) -> str:
    """To the second; nothing where it is not known."""
    known = datetime.fromisoformat(instant) if isinstance(instant, str) else instant
    return f"{known.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC" if known else ""


def verdict(value: bool | None) -> str:  # noqa: FBT001 - a verdict is what is put into words
    """In a word."""
    return {True: "right", False: "wrong", None: "none"}[value]
