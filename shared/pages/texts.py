"""Show texts of models, corpora and users on a page: all characters are visible, and no markup takes effect."""

import json
import re

import msgspec
from markupsafe import Markup, escape

HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters, and those that reverse the direction of a text and so can disguise it."""
CODE = re.compile("`([^`]+)`")
MATHEMATICS = re.compile(r"\$[^$]+\$|\\\(|\\\[|\\begin\{|\\boxed\{|\\d?frac\{")
MARKED = re.compile(r"\$|\\\(|\\\[|\\boxed\{")
"""The delimiters at which the browser starts to typeset mathematics."""
COMMAND = re.compile(r"\\[A-Za-z]|\^")


def format_json(value: object) -> str:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def escape_visible(text: object) -> Markup:
    """Escape `text` and show its invisible characters as their code points."""
    shown = escape(str(text))
    return Markup(HIDDEN.sub(_show_code_point, shown)) if HIDDEN.search(shown) else shown  # noqa: S704 - escaped


def mark_math(text: object) -> Markup:
    """Escape `text` as `escape_visible` does; if it contains mathematics, mark it for typesetting."""
    shown = escape_visible(text)
    return Markup('<span class="math">%s</span>') % shown if MATHEMATICS.search(str(text)) else shown


def mark_formula(text: object) -> Markup:
    """Mark an answer or an equation for typesetting, even if it has no delimiters of mathematics."""
    bare = str(text)
    return mark_math(f"${bare}$" if COMMAND.search(bare) and not MARKED.search(bare) else bare)


def mark_code(text: object) -> Markup:
    """Escape `text` as `escape_visible` does and set text between backticks as code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape_visible(text))))  # noqa: S704 - escaped


def format_value(value: object) -> Markup:
    """Show a parameter or setting as on a command line: a text as it is, any other value as JSON."""
    if value in ("", None):
        return Markup('<span class="faint">%s</span>') % ("empty" if value == "" else "none")
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Markup("<code>%s</code>") % escape_visible(written)


def _show_code_point(found: re.Match[str]) -> str:
    return f'<span class="hidden-character">U+{ord(found[0]):04X}</span>'
