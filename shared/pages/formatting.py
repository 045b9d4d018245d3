"""Show texts, values, differences and highlights on a page."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby, pairwise
from typing import Any, Literal

import msgspec
from markupsafe import Markup, escape

# Show texts of models, corpora and users on a page: all characters are visible, and no markup takes effect.

HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)
"""Control characters, and those that reverse the direction of a text and so can disguise it."""
CODE = re.compile("`([^`]+)`")
DOLLARS = r"\$\$[\s\S]+?\$\$|\$(?:[^\s$](?:[^$\n]*[^\s$])?| [^\s\d$](?:[^$\n]*[^\s$])? )\$(?!\d)"
"""A formula between dollars. As in Pandoc, no blank is inside them at either end, and no digit follows the last one:
`$5 and then $6` are amounts of money. Unlike there, `$ x $` is a formula, since models write it."""
MATHEMATICS = re.compile(rf"{DOLLARS}|\\\(|\\\[|\\begin\{{|\\boxed\{{|\\d?frac\{{")
MARKED = re.compile(r"\$|\\\(|\\\[|\\boxed\{")
"""The delimiters at which the browser starts to typeset mathematics."""
COMMAND = re.compile(r"\\[A-Za-z]|\^")


def format_json(value: object) -> str:
    """Return a value as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def escape_visible(text: object) -> Markup:
    """Escape `text` and show its invisible characters as their code points."""
    shown = escape(str(text))
    if not HIDDEN.search(shown):
        return shown
    seen = HIDDEN.sub(lambda found: f'<span class="hidden-character">U+{ord(found[0]):04X}</span>', shown)
    return Markup(seen)  # noqa: S704 - escaped


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
    """Show a parameter or setting as on a command line: a text unchanged, any other value as JSON."""
    if value in ("", None):
        return Markup('<span class="faint">%s</span>') % ("empty" if value == "" else "none")
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Markup("<code>%s</code>") % escape_visible(written)


# List the differences between two trees of values, such as two versions of a configuration.

Tree = Mapping[str, Any]
Path = tuple[str, ...]


class ValueDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A value that differs between two versions or sides, or that only one of them has."""

    name: str
    """Path of the value, such as `gate.tau`."""
    change: Literal["added", "removed", "changed"]
    """Change from the left side to the right side."""
    left: Any = None
    """Value on the left; null if it was added."""
    right: Any = None
    """Value on the right; null if it was removed."""


def compare_trees(left: Tree, right: Tree) -> list[ValueDifference]:
    """List the changes that turn `left` into `right`, sorted by name."""
    before, after = dict(_walk_leaves(left)), dict(_walk_leaves(right))
    found: list[ValueDifference] = []
    for path in sorted(before.keys() | after.keys()):
        name, was, now = ".".join(path), before.get(path), after.get(path)
        if path not in before:
            found.append(ValueDifference(name=name, change="added", right=now))
        elif path not in after:
            found.append(ValueDifference(name=name, change="removed", left=was))
        elif was != now or isinstance(was, bool) != isinstance(now, bool):  # in Python, True equals 1
            found.append(ValueDifference(name=name, change="changed", left=was, right=now))
    return found


def flatten_tree(tree: Tree) -> dict[str, Any]:
    """Return every value of the tree by its dotted name, such as `gate.tau`."""
    return {".".join(path): value for path, value in sorted(_walk_leaves(tree), key=lambda leaf: leaf[0])}


def _walk_leaves(tree: Tree, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield each value with its path, as a tuple because a name may contain a dot."""
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _walk_leaves(value, (*above, name))
        else:
            yield (*above, name), value


# Mark the words of a question in a text; formulas stay whole, so that they can be typeset.

_FORMULA = re.compile(
    rf"({DOLLARS}|\\\[[\s\S]+?\\\]|\\\([\s\S]+?\\\)|\\boxed\{{[^{{}}]*(?:\{{[^{{}}]*\}}[^{{}}]*)*\}})"
)
"""The same delimiters as in the script that typesets formulas."""
_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_RUN = re.compile(f"[{_CJK}]+")
_WORD = re.compile(rf"(\\[A-Za-z]+|[{_CJK}]+|\d+(?:[.,]\d+)*|[^\W\d_{_CJK}]+)")


def extract_terms(text: str) -> frozenset[str]:
    """Return the words and numbers of `text` in lower case, and each pair of adjacent Chinese characters."""
    terms: set[str] = set()
    for word in _WORD.findall(text):
        if _RUN.fullmatch(word) and len(word) > 1:
            terms.update(one + other for one, other in pairwise(word))
        else:
            terms.add(word.casefold())
    return frozenset(terms)


def highlight(text: str, terms: Collection[str]) -> Markup:
    """Show `text` as `mark_math` does, with the words of `terms` and the formulas that contain one marked."""
    mark, drawn = Markup("<mark>%s</mark>"), []
    for n, part in enumerate(_FORMULA.split(text)):
        if n % 2:
            typeset = Markup('<span class="math">%s</span>') % escape_visible(part)
            drawn.append(mark % typeset if extract_terms(part) & frozenset(terms) else typeset)
            continue
        for m, word in enumerate(_WORD.split(part)):
            for piece, matches in _split_word(word, terms) if m % 2 else [(word, False)]:
                drawn.append(mark % escape_visible(piece) if matches else escape_visible(piece))
    return Markup("").join(drawn)


def _split_word(word: str, terms: Collection[str]) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a word and whether they match; in Chinese text, pairs of `terms` match."""
    if not _RUN.fullmatch(word) or len(word) == 1:
        yield word, word.casefold() in terms
        return
    pairs = [one + other in terms for one, other in pairwise(word)]
    flags = [before or after for before, after in zip([False, *pairs], [*pairs, False], strict=True)]
    for matches, piece in groupby(zip(word, flags, strict=True), key=lambda each: each[1]):
        yield "".join(character for character, _ in piece), matches
