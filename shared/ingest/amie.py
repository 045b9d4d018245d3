"""Read and write rules in AMIE3's TSV (Lajus et al. 2020), as `java -jar amie3.jar FILE` prints it, with or without
header.

A figure that AMIE did not compute is -1, or its column is missing (`-ostd`): standard confidence and body size are then
0 here.
"""

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import count
from string import ascii_lowercase
from typing import NamedTuple

from mathrag.errors import Invalid
from mathrag.reading.lines import Defect, locate_defect
from mathrag.reading.rows import Sound
from shared.replies import Atom, Rule, Term

COLUMNS = (
    "Rule", "Head Coverage", "Std Confidence", "PCA Confidence", "Positive Examples", "Body size", "PCA Body size",
    "Functional variable",
)  # fmt: skip
"""Columns in AMIE's order; its verbose mode prints more."""
NEEDED = tuple(name for name in COLUMNS if name not in {"Std Confidence", "Body size"})
ARROW = " => "
BETWEEN = "  "
"""Separator of the parts of an atom, and of atoms."""
MARK = "?"
"""Prefix of a variable."""
NOT_COMPUTED = "-1"
MOST_COUNT = 10**18
"""Upper bound of a count."""
MOST_ATOMS = 16
"""Maximum number of atoms in a body; miners find three or four."""
DECIMALS = 9
"""Number of decimals in AMIE's output; more are written if they are needed to restore the number."""
_COUNT = re.compile(r"\d{1,18}(\.0)?")
_SHARE = re.compile(r"\d{1,9}(\.\d*)?([eE]-\d{1,3})?")
_HEADER = re.compile(r"(^|[ .])Rule\t")
_SUMMARY = re.compile(
    r"\s*$|Mining done in |Total time |\d+ rules mined|MRT calls: |Queries: |Matches: |Collisions: |\.* ?[Dd]one"
)
"""Matches the lines that AMIE prints after its rules."""


class NamedAtom(NamedTuple):
    """An atom whose terms are still text."""

    relation: str
    subject: str
    object: str


def read(lines: Iterator[Sound], source: str) -> Iterator[tuple[str, Rule]]:
    """Yield each rule with its place ("line 7"), without what AMIE prints before and after the rules.

    Raises:
        InvalidLine: a line is not a rule of AMIE's, or the header lacks a column.
        Invalid: no line is a rule.
    """
    columns: Sequence[str] = COLUMNS
    begun, rules = False, 0
    for number, line in lines:
        try:
            if "Rule\t" in line and _HEADER.search(line):  # the regex alone takes 3 ms for a line of 64 KiB dots
                columns, begun = _read_header(line), True
            elif ARROW in line and "\t" in line:
                begun, rules = True, rules + 1
                yield f"line {number}", parse_rule(line, columns)
            elif begun:
                _check_summary(line)
        except Defect as defect:
            raise locate_defect(defect, source, number) from defect
    if not rules:
        raise Invalid(
            f"{source} has no rules in AMIE's columns, and is not an exported bank",
            hint="docs/how-to/knowledge-graphs.md#import-export-and-deletion describes both files",
        )


def _read_header(line: str) -> list[str]:
    """Return the names of the columns; progress that AMIE printed before them on the line is dropped."""
    names = line[line.index(COLUMNS[0] + "\t") :].split("\t")
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise Defect(f"the header has no column `{missing[0]}`; import the table with AMIE's header")
    return names


def _check_summary(line: str) -> None:
    if _SUMMARY.match(line) is None:
        raise Defect(f"{line[:80]!r} has no `{ARROW.strip()}` between body and head, or no tabs between columns")


def parse_rule(line: str, columns: Sequence[str] = COLUMNS) -> Rule:
    """Read the rule on a line.

    Raises:
        Defect: it has none.
    """
    cells = [cell.strip() for cell in line.split("\t")]
    if len(cells) < len(columns):
        raise Defect(
            f"has {len(cells)} of {len(columns)} columns ({', '.join(columns)}); copy the file again if it is truncated"
        )
    row = dict(zip(columns, cells, strict=False))
    for column in ("Body size", "Std Confidence"):
        if row.get(column, NOT_COMPUTED) == NOT_COMPUTED:
            row[column] = "0"
    named_head, named_body = _split_sides(row["Rule"])
    head, body = _number_variables(named_head, named_body)
    return Rule(
        head=head,
        body=body,
        support=_read_count(row, "Positive Examples"),
        body_size=_read_count(row, "Body size"),
        confidence=_read_share(row, "Std Confidence"),
        head_coverage=_read_share(row, "Head Coverage"),
        pca_confidence=_read_share(row, "PCA Confidence"),
        pca_body_size=_read_count(row, "PCA Body size"),
        functional=_find_functional_side(row["Functional variable"], named_head),
    )


def _read_count(row: dict[str, str], column: str) -> int:
    text = row[column]
    if _COUNT.fullmatch(text) is None:
        raise Defect(f"`{column}` is {text[:40]!r}, not a whole number")
    return int(text.removesuffix(".0"))


def _read_share(row: dict[str, str], column: str) -> float:
    text = row[column]
    if _SHARE.fullmatch(text) is None:
        comma = "; write decimal points, not commas" if "," in text else ""
        raise Defect(f"`{column}` is {text[:40]!r}, not a number{comma}")
    value = float(text)
    if value > 1:
        raise Defect(f"`{column}` is {text[:40]}; it must be from 0 to 1")
    return value


def _find_functional_side(text: str, head: NamedAtom) -> int:
    if not _is_variable(text) or text not in {head.subject, head.object}:
        raise Defect(f"`Functional variable` is {text[:40]!r}, not a variable of the head")
    return 0 if text == head.subject else 1


def _is_variable(name: str) -> bool:
    return name.startswith(MARK)


def _split_sides(text: str) -> tuple[NamedAtom, tuple[NamedAtom, ...]]:
    """Split into head and body. Two spaces follow each atom of the body, so ` => ` is looked for after these first: a
    name may hold it, but no name holds two spaces."""
    body, arrow, head = text.rpartition(BETWEEN + ARROW)
    if not arrow:
        body, arrow, head = text.rpartition(ARROW)
    heads = _split_atoms(head)
    if len(heads) != 1:
        raise Defect(f"the rule's head {head[:80]!r} must be exactly one atom")
    return heads[0], _split_atoms(body)


def _split_atoms(text: str) -> tuple[NamedAtom, ...]:
    names = text.strip().split(BETWEEN) if text.strip() else []
    if len(names) % 3 or not all(names):
        problem = "is not a list of atoms with three names each, separated by two spaces (as AMIE without `-datalog`)"
        raise Defect(f"{text[:80]!r} {problem}")
    return tuple(NamedAtom(names[i + 1], names[i], names[i + 2]) for i in range(0, len(names), 3))


def _number_variables(head: NamedAtom, body: Sequence[NamedAtom]) -> tuple[Atom, tuple[Atom, ...]]:
    """Number the variables: the head's subject is 0, its object 1, others from 2 in the body's order."""
    if len(body) > MOST_ATOMS:
        raise Defect(f"has {len(body)} atoms in its body, but at most {MOST_ATOMS} are read")
    numbers = {head.object: 1} if _is_variable(head.object) else {}
    numbers |= {head.subject: 0} if _is_variable(head.subject) else {}
    further = count(2)

    def term(name: str) -> Term:
        if not _is_variable(name):
            return name
        if name not in numbers:
            numbers[name] = next(further)
        return numbers[name]

    atoms = [Atom(atom.relation, term(atom.subject), term(atom.object)) for atom in (head, *body)]
    return atoms[0], tuple(atoms[1:])


def check(rule: Rule) -> None:
    """Refuse what `format_line` cannot write.

    Raises:
        Invalid: the rule lacks AMIE's figures, or has a name that AMIE's notation cannot hold.
    """
    _require_figures(rule)
    for atom in (rule.head, *rule.body):
        _format_atom(atom)


def format_line(rule: Rule) -> str:
    """Format `rule` as AMIE prints it, without a line end.

    Raises:
        Invalid: as `check` says.
    """
    head_coverage, pca_confidence, pca_body_size, functional = _require_figures(rule)
    is_computed = rule.body_size > 0
    cells = (
        "".join(f"{_format_atom(atom)}{BETWEEN}" for atom in rule.body) + ARROW + _format_atom(rule.head),
        _format_decimal(head_coverage),
        _format_decimal(rule.confidence) if is_computed else NOT_COMPUTED,
        _format_decimal(pca_confidence),
        str(rule.support),
        str(rule.body_size) if is_computed else NOT_COMPUTED,
        str(pca_body_size),
        _format_term(functional),
    )
    return "\t".join(cells)


def _require_figures(rule: Rule) -> tuple[float, float, int, int]:
    """Return head coverage, PCA confidence, PCA body size and functional variable."""
    coverage, confidence, size, functional = (
        rule.head_coverage, rule.pca_confidence, rule.pca_body_size, rule.functional
    )  # fmt: skip
    if coverage is None or confidence is None or size is None or functional is None:
        problem = "the rule lacks head coverage and PCA confidence, which AMIE's columns need"
        raise Invalid(problem, hint="export as json")
    return coverage, confidence, size, functional


def _format_atom(atom: Atom) -> str:
    return BETWEEN.join((_format_term(atom.subject), _check_name(atom.relation), _format_term(atom.object)))


def _format_term(term: Term) -> str:
    if isinstance(term, int):
        return MARK + (ascii_lowercase[term] if term < len(ascii_lowercase) else f"v{term}")
    if term.startswith(MARK):
        raise Invalid(f"entity {term!r} would be read as a variable in AMIE's notation", hint="export as json")
    return _check_name(term)


def _check_name(name: str) -> str:
    if not name or name != name.strip() or BETWEEN in name or any(sign in name for sign in "\t\n\r"):
        problem = "AMIE's notation cannot hold a name with a tab, a line end, two spaces or spaces around it"
        raise Invalid(f"{name!r}: {problem}", hint="export as json")
    return name


def _format_decimal(value: float) -> str:
    """Format `value` without an exponent, with nine decimals or as many as restore the number."""
    whole, _, decimals = format(Decimal(repr(value)), "f").partition(".")
    return f"{whole}.{decimals:0<{DECIMALS}}"
