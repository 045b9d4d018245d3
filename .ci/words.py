"""Measure how plainly the project is written, and fail if a figure is above its limit in `words.json`.

`.ci/words.py --lower` sets each limit to today's figure where that is lower; a limit is never raised by a program.
A figure shows where to look: a sentence must become simple, not merely pass.
"""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from math import ceil
from pathlib import Path

from services.orchestrator.app import build
from shared.settings import REPOSITORY, Settings

LIMITS = REPOSITORY / ".ci" / "words.json"
SHOWN = 10
"""Places that are printed for a figure above its limit."""
ODD = re.compile(
    r"\b(?:is|are|was|were|be) (?:no|none)\b(?! (?:longer|more|one)\b)"  # "a pair is no list"
    r"|\bst(?:ands?|ood)\b(?! for\b)"
    r"|\bwhat (?!(?:is|are) the\b|to\b|if\b|follows\b)(?:[a-z']+ ){0,3}(?:is|are|was|were|has|have|had|it|they|an?|the"
    r"|cannot|can|may|holds?|needs?|runs?|makes?|does|did)\b"  # a clause in place of a noun
    r"|\b(?:who|what)ever\b|\b(?:no|some)body\b"
    r"|\bso (?:many|much|long|often|few)\b"
    r"|\b(?:go|goes|going|went) on\b"
    r"|\bof (?:its|our|their|your) own\b|\bof ours\b"
    r"|\bas (?:it|they) (?:is|are|was|were|comes?|stands?)\b"
    r"|, too\b"
    r"|\b(?:is|are|not) well\b|\bmend(?:s|ed)?\b"
    r"|\bheld against\b|\bby turns\b|\b(?:alike|anew|beside|meanwhile|thereby|therein)\b",
    re.IGNORECASE,
)
"""Phrases that a reader has to decode; most come from translating word by word."""
FRAGMENT = re.compile(
    r"(?:about|above|after|against|along|and|as|at|because|before|behind|below|beside|between|both|by|for|from|how|if"
    r"|in|not|of|on|only|per|since|so|such|than|to|under|until|what|when|where|whether|which|who|whose|with|within|without)\b",
    re.IGNORECASE,
)
"""A docstring that begins like this is hardly a sentence."""
PARTICIPLE = re.compile(
    r"_*(?:begun|bound|broken|built|chosen|done|drawn|found|given|gone|held|kept|known|laid|left|lost|made|met|paid|said"
    r"|seen|sent|shown|taken|told|written|(?!(?:bed|embed|exceed|feed|need|proceed|red|seed|shed|speed)(?:_|$))[a-z]+ed)"
    r"(?:_|$)"
)
"""A function's name should begin with a verb that says what the function does."""


def list_files(*patterns: str) -> list[Path]:
    """Return the files that git knows and that exist, below the repository."""
    command = ["git", "ls-files", *patterns]
    names = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.split()  # noqa: S603
    return [path for name in names if (path := REPOSITORY / name).exists()]


class Figures:
    """Figures by name, and the places that each comes from."""

    def __init__(self) -> None:
        self.values: dict[str, float] = {}
        self.places: dict[str, list[str]] = {}

    def add(self, name: str, places: list[str], whole: int, per: int = 100) -> None:
        """Add the share of `places` in `whole`, as a number per hundred or per thousand, rounded up to a tenth."""
        self.values[name] = ceil(10 * per * len(places) / max(whole, 1)) / 10
        self.places[name] = places


def measure_pages(figures: Figures) -> None:
    """Add odd phrases in the documentation, and the words of pages written by hand; code blocks do not count."""
    words, odd, sizes = 0, [], Counter[str]()
    for path in list_files("docs/*.md", "README.md", "CONTRIBUTING.md", "SECURITY.md"):
        name = str(path.relative_to(REPOSITORY))
        blank = lambda block: "\n" * block[0].count("\n")  # noqa: E731  # so that line numbers stay
        text = re.sub(r"```.*?```", blank, path.read_text("utf-8"), flags=re.DOTALL)
        count = len(text.split())
        words += count
        odd += [f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}" for match in ODD.finditer(text)]
        if not name.startswith(("docs/reference/", "docs/explanation/decisions/", "docs/glossary.md")):
            sizes[name] = count
    figures.add("odd phrases per 1,000 words of documentation", odd, words, 1000)
    longest = [f"{name}: {count} words" for name, count in sizes.most_common()]
    for name, value in (
        ("words of the longest page that is not reference", max(sizes.values())),
        ("words of all pages that are not reference", sizes.total()),
    ):
        figures.values[name], figures.places[name] = value, longest
    lines = (REPOSITORY / "README.md").read_text("utf-8").count("\n")
    figures.values["lines of the README"], figures.places["lines of the README"] = lines, []


def measure_code(figures: Figures) -> None:
    """Add odd phrases in texts of the code, docstrings that begin as a fragment, participles, and repeated names."""
    texts, odd, documented, fragments, functions, participles = 0, [], 0, [], 0, []
    classes: dict[str, list[str]] = {}
    for path in list_files("mathrag/*.py", "mathrag_gate/*.py", "services/*.py", "shared/*.py", "tools/*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            place = f"{path.relative_to(REPOSITORY)}:{getattr(node, 'lineno', 1)}"
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                texts += len(node.value.split())
                odd += [f"{place}: {found}" for found in ODD.findall(node.value)]
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node) or ""
                documented += bool(docstring)
                fragments += [f"{place}: {docstring[:60]}"] * bool(FRAGMENT.match(docstring))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
                functions += 1
                participles += [f"{place}: {node.name}"] * bool(PARTICIPLE.match(node.name))
            # The client repeats the answers of the server on purpose, under their names.
            elif isinstance(node, ast.ClassDef) and not path.is_relative_to(REPOSITORY / "mathrag" / "client"):
                classes.setdefault(node.name, []).append(place)
    figures.add("odd phrases per 1,000 words of texts in the code", odd, texts, 1000)
    figures.add("docstrings that begin as a fragment, per cent", fragments, documented)
    figures.add("functions named by a participle, per cent", participles, functions)
    repeated = [f"{place}: {name}" for name, places in classes.items() if len(places) > 1 for place in places]
    figures.add("classes that share their name, per cent", repeated, sum(map(len, classes.values())))


def measure_api(figures: Figures) -> None:
    """Add fields and parameters of the REST API that have no description."""
    document = build(Settings(database_url="unused")).openapi()
    fields = {
        f"{schema}.{name}": bool(field.get("description"))
        for schema, content in document["components"]["schemas"].items()
        for name, field in content.get("properties", {}).items()
    } | {
        f"{method.upper()} {path}: {parameter['name']}": bool(parameter.get("description"))
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        for parameter in operation.get("parameters", ())
    }
    bare = [name for name, described in fields.items() if not described]
    figures.add("fields of the REST API without a description, per cent", bare, len(fields))


def list_excesses(figures: Figures, limits: dict[str, float]) -> Iterator[str]:
    """Yield a text for every figure above its limit, with the first places that it comes from."""
    for name, value in figures.values.items():
        if value > limits[name]:
            places = figures.places[name]
            yield "\n  ".join([f"{name}: {value:g}, and at most {limits[name]:g} are allowed", *places[:SHOWN]])


def main() -> None:
    """Measure, and compare with the limits or lower them."""
    figures, limits = Figures(), json.loads(LIMITS.read_text("utf-8"))
    measure_pages(figures)
    measure_code(figures)
    measure_api(figures)
    if "--lower" in sys.argv:
        limits = {name: min(value, limits.get(name, value)) for name, value in figures.values.items()}
        LIMITS.write_text(json.dumps(limits, indent=2) + "\n", "utf-8")
    for name, value in figures.values.items():
        print(f"{value:>8g}  (at most {limits[name]:g})  {name}")  # noqa: T201
    if excesses := list(list_excesses(figures, limits)):
        raise SystemExit("\n".join(["", *excesses, "Write it in plainer words; docs/glossary.md has the terms."]))


if __name__ == "__main__":
    main()
