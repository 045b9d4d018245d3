"""Format numbers, texts, differences and highlights for people."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import groupby, pairwise
from typing import Any, Literal

import msgspec
from markupsafe import Markup, escape

from shared.messages import format_count
from shared.samples import Extraction

# Format figures in words, the same on a terminal and on a page.

SMALL = 0.0001
"""The smallest p-value that is printed as it is."""
NOT_FOUND = (Extraction.MISSING, Extraction.UNBALANCED, Extraction.ONLY_REASONING)
"""Kinds of extraction that found no final answer. A refusal is not one of them: nothing was to be found."""
ANOTHER_GRADER = "Choose another grader; an import can also give the final answers themselves, as `answer`"
"""What to do if most answers hold no final answer."""


def format_accuracy(figure: Any) -> str:
    """Return for example "61.0 % (56.7 to 65.2), 305 of 500"."""
    if figure["value"] is None:
        return "nothing was graded"
    return f"{format_share(figure)}, {format_counted(figure)}"


def format_counted(figure: Any) -> str:
    """Return what an accuracy is of: "305 of 500", or "mean of 40 items, 80 answers" if items have several answers."""
    items, answers = figure.get("items", figure["graded"]), figure["graded"]  # older servers do not count items
    if items == answers:
        return f"{figure['correct']} of {answers}"
    return f"mean of {format_count(items, 'item')}, {format_count(answers, 'answer')}"


def format_share(figure: Any) -> str:
    """Return for example "61.0 % (56.7 to 65.2)"."""
    return f"{100 * figure['value']:.1f} % ({format_interval(figure)})"


def format_headline(report: Any) -> str:
    """Return the headline of a job's report, such as "61.0 % right (56.7 to 65.2), 305 of 500; 3 failed"."""
    found, failed = report["accuracy"], report["request_counts"]["failed"]
    unreadable = explain_missing_answers(report.get("extraction", {}), found)
    sentence = unreadable or ("Nothing was graded" if found["value"] is None else format_right(found))
    troubles = f"; {failed} failed" if failed else ""
    return f"{sentence}{troubles}. {ANOTHER_GRADER}." if unreadable else f"{sentence}{troubles}"


def format_right(figure: Any, when: str = "") -> str:
    """Return for example "61.0 % right (56.7 to 65.2), 305 of 500", with `when`, such as " so far", after "right"."""
    return format_accuracy(figure).replace(" %", f" % right{when}", 1)


def explain_missing_answers(extraction: Mapping[str, int], accuracy: Any) -> str | None:
    """Say that an accuracy means little because more than half of the answers hold no final answer; else None.

    Args:
        extraction: answers by how their final answer was found, as in a report.
        accuracy: the job's accuracy.
    """
    missing = sum(extraction.get(kind, 0) for kind in NOT_FOUND)
    answers = missing + extraction.get(Extraction.OK, 0) + extraction.get(Extraction.EMPTY, 0)
    if accuracy["value"] is None or 2 * missing <= answers:
        return None
    how_much = "nothing" if missing == answers else "little"
    return (
        f"In {missing} of {answers} answers no final answer could be found, so {100 * accuracy['value']:.1f} % says"
        f" {how_much} about the system"
    )


def format_mean(mean: Any) -> str:
    """Return for example "61.0 % (56.7 to 65.2), 500 items"."""
    if mean["value"] is None:
        return "not measured"
    between = "" if mean["low"] is None else f" ({format_interval(mean)})"
    return f"{100 * mean['value']:.1f} %{between}, {format_count(mean['n'], 'item')}"


def format_interval(found: Any) -> str:
    """Return an interval in per cent, such as "56.6 to 65.2"."""
    return f"{100 * found['low']:.1f} to {100 * found['high']:.1f}"


def format_counts(counts: dict[str, int]) -> str:
    """Return for example "judge 40, generate 100", without the counts that are 0."""
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def describe_difference(test: Any) -> str:
    """Describe a difference between two systems, such as "+0.01 (-0.01 to +0.03), p = 0.2800: not separable ..."."""
    if test is None:
        return "too few queries to compare"
    known = test["low"] is not None
    interval = f"{test['low']:+.4f} to {test['high']:+.4f}" if known else "the same on every query, so no interval"
    verdict = "separable" if test["separable"] else f"not separable on {test['n']} queries"
    p = f"p = {test['adjusted']:.4f}" if test["adjusted"] >= SMALL else f"p < {SMALL}"
    return f"{test['value']:+.4f} ({interval}), {p}: {verdict}"


def format_figure(value: float | None) -> str:
    """Format a value with four decimals; "-" stands for None."""
    return "-" if value is None else f"{value:.4f}"


def take_last_line(text: str | None) -> str | None:
    """Return the last line of a traceback, which names the error; `--json` shows all of it."""
    return text.strip().splitlines()[-1] if text else text


def format_duration(seconds: float) -> str:
    """Return for example "8 s", "4 min" or "2.5 h"."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{_round_short(seconds / size)} {unit}"
    return f"{_round_short(seconds)} s"


def format_duration_range(low: float, high: float) -> str:
    """Return for example "2 to 4 min"; both bounds have their unit where the units differ."""
    one, other = format_duration(low), format_duration(high)
    if one == other:
        return f"about {one}"
    value, _, unit = one.partition(" ")
    return f"{value} to {other}" if other.endswith(f" {unit}") else f"{one} to {other}"


def _round_short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}".removesuffix(".0")


# Show texts of models, corpora and users on a page: all characters are visible, and no markup takes effect.

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
    """Show a parameter or setting as on a command line: a text as it is, any other value as JSON."""
    if value in ("", None):
        return Markup('<span class="faint">%s</span>') % ("empty" if value == "" else "none")
    written = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Markup("<code>%s</code>") % escape_visible(written)


# List the differences between two trees of values, such as two versions of a configuration.

Tree = Mapping[str, Any]
Path = tuple[str, ...]


class ValueDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A value that differs between two trees, or that only one of them has."""

    name: str
    """Such as `gate.tau`."""
    change: Literal["added", "removed", "changed"]
    """What leads from left to right."""
    left: Any = None
    """Null where it was added."""
    right: Any = None
    """Null where it was removed."""


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
    r"(\$\$[\s\S]+?\$\$|\\\[[\s\S]+?\\\]|\$[^$\n]+?\$|\\\([\s\S]+?\\\)|\\boxed\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})"
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
    """Yield the pieces of a word and whether they match; of Chinese text, what is in a pair of `terms` matches."""
    if not _RUN.fullmatch(word) or len(word) == 1:
        yield word, word.casefold() in terms
        return
    pairs = [one + other in terms for one, other in pairwise(word)]
    flags = [before or after for before, after in zip([False, *pairs], [*pairs, False], strict=True)]
    for matches, piece in groupby(zip(word, flags, strict=True), key=lambda each: each[1]):
        yield "".join(character for character, _ in piece), matches
