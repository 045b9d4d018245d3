"""Texts of models, corpora and users on a page: everything is shown, and nothing of it acts."""

import json
import re

from markupsafe import Markup, escape

HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters and those that turn the direction of a text around, which would let it look like another."""
CODE = re.compile("`([^`]+)`")
MATHEMATICS = re.compile(r"\$[^$]+\$|\\\(|\\\[|\\begin\{|\\boxed\{|\\d?frac\{")
MARKED = re.compile(r"\$|\\\(|\\\[|\\boxed\{")
"""What the browser takes as the beginning of mathematics."""
COMMAND = re.compile(r"\\[A-Za-z]|\^")


def visible(text: object) -> Markup:
    """`text` escaped, with its invisible characters as their code points."""
    shown = escape(str(text))
    return Markup(HIDDEN.sub(_code_point, shown)) if HIDDEN.search(shown) else shown  # noqa: S704 - escaped


def math(text: object) -> Markup:
    """As `visible`; where there is mathematics in it, marked to be typeset in the browser."""
    shown = visible(text)
    return Markup('<span class="math">%s</span>') % shown if MATHEMATICS.search(str(text)) else shown


def formula(text: object) -> Markup:
    """An answer or an equation, which may be mathematics without saying so."""
    bare = str(text)
    return math(f"${bare}$" if COMMAND.search(bare) and not MARKED.search(bare) else bare)


def code(text: object) -> Markup:
    """As `visible`; what stands between backticks is set as code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(visible(text))))  # noqa: S704 - escaped


def value(value: object) -> Markup:
    """A parameter or a setting as it is written on a command line: a text as it is, anything else as JSON."""
    if value in ("", None):
        return Markup('<span class="faint">%s</span>') % ("empty" if value == "" else "none")
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Markup("<code>%s</code>") % visible(written)


def _code_point(found: re.Match[str]) -> str:
    return f'<span class="hidden-character">U+{ord(found[0]):04X}</span>'
