"""AMIE3's TSV (Lajus et al. 2020), as `java -jar amie3.jar FILE` prints it and as it is kept without its header.

A figure that AMIE was not asked for is -1 or its column is missing (`-ostd`): standard confidence and body size are
then 0 here.
"""

import re
from collections.abc import Iterator, Sequence

from shared.contracts.rules import Atom, Rule, Term
from shared.errors import Invalid
from shared.ingest.lines import Defect, located
from shared.ingest.rules import figures, terms
from shared.ingest.rules.terms import Named
from shared.ingest.text_files import Sound

COLUMNS = (
    "Rule", "Head Coverage", "Std Confidence", "PCA Confidence", "Positive Examples", "Body size", "PCA Body size",
    "Functional variable",
)  # fmt: skip
"""In AMIE's order; it prints further ones when it is verbose."""
NEEDED = tuple(name for name in COLUMNS if name not in {"Std Confidence", "Body size"})
ARROW = " => "
BETWEEN = "  "
"""Between the parts of an atom and between atoms."""
MARK = "?"
"""What a variable begins with."""
LETTERS = "abcdefghijklmnopqrstuvwxyz"
_HEADER = re.compile(r"(^|[ .])Rule\t")
_SUMMARY = re.compile(
    r"\s*$|Mining done in |Total time |\d+ rules mined|MRT calls: |Queries: |Matches: |Collisions: |\.* ?[Dd]one"
)
"""How the lines begin that AMIE prints after its rules."""


def read(lines: Iterator[Sound], source: str) -> Iterator[tuple[str, Rule]]:
    """Each rule with its place ("line 7"); what AMIE prints before and after its rules is left out.

    Raises:
        InvalidLine: a line is no rule of AMIE's, or the header lacks a column.
    """
    columns: Sequence[str] = COLUMNS
    begun = False
    for number, line in lines:
        try:
            if _HEADER.search(line) is not None:
                columns, begun = _header(line), True
            elif ARROW in line and "\t" in line:
                begun = True
                yield f"line {number}", rule(line, columns)
            elif begun:
                _check_summary(line)
        except Defect as defect:
            raise located(defect, source, number) from defect


def _header(line: str) -> list[str]:
    """The names of the columns; what AMIE's progress left before them on the line is dropped."""
    names = line[line.index(COLUMNS[0] + "\t") :].split("\t")
    missing = [name for name in NEEDED if name not in names]
    if missing:
        raise Defect(f"the header has no column `{missing[0]}`; import the table as AMIE printed it")
    return names


def _check_summary(line: str) -> None:
    if _SUMMARY.match(line) is None:
        raise Defect(f"{line[:80]!r} has no `{ARROW.strip()}` between body and head, or no tabs between columns")


def rule(line: str, columns: Sequence[str] = COLUMNS) -> Rule:
    """The rule on a line.

    Raises:
        Defect: it has none.
    """
    cells = [cell.strip() for cell in line.split("\t")]
    if len(cells) < len(columns):
        raise Defect(f"has {len(cells)} columns of {len(columns)} ({', '.join(columns)}); is the file cut off?")
    row = dict(zip(columns, cells, strict=False))
    named_head, named_body = _sides(row["Rule"])
    head, body = terms.numbered(named_head, named_body, _is_variable)
    return Rule(
        head=head,
        body=body,
        support=figures.count("Positive Examples", row["Positive Examples"]),
        body_size=figures.count("Body size", _computed(row, "Body size")),
        confidence=figures.share("Std Confidence", _computed(row, "Std Confidence")),
        head_coverage=figures.share("Head Coverage", row["Head Coverage"]),
        pca_confidence=figures.share("PCA Confidence", row["PCA Confidence"]),
        pca_body_size=figures.count("PCA Body size", row["PCA Body size"]),
        functional=_functional(row["Functional variable"], named_head),
    )


def _computed(row: dict[str, str], column: str) -> str:
    text = row.get(column, figures.NOT_COMPUTED)
    return "0" if text == figures.NOT_COMPUTED else text


def _functional(text: str, head: Named) -> int:
    if not _is_variable(text) or text not in {head.subject, head.object}:
        raise Defect(f"`Functional variable` is {text[:40]!r}, not a variable of the head")
    return 0 if text == head.subject else 1


def _is_variable(name: str) -> bool:
    return name.startswith(MARK)


def _sides(text: str) -> tuple[Named, tuple[Named, ...]]:
    """Head and body. AMIE writes two spaces after every atom of the body, so ` => ` is looked for after these first: a
    name may hold it, and no name holds two spaces."""
    body, arrow, head = text.rpartition(BETWEEN + ARROW)
    if not arrow:
        body, arrow, head = text.rpartition(ARROW)
    heads = _atoms(head)
    if len(heads) != 1:
        raise Defect(f"{head[:80]!r} is no head of one atom")
    return heads[0], _atoms(body)


def _atoms(text: str) -> tuple[Named, ...]:
    names = text.strip().split(BETWEEN) if text.strip() else []
    if len(names) % 3 or not all(names):
        said = "is not atoms of three names, all separated by two spaces (AMIE prints them so without `-datalog`)"
        raise Defect(f"{text[:80]!r} {said}")
    return tuple(Named(names[i + 1], names[i], names[i + 2]) for i in range(0, len(names), 3))


def check(rule: Rule) -> None:
    """Refuse what `line` cannot write.

    Raises:
        Invalid: the rule lacks AMIE's figures, or has a name that AMIE's notation cannot hold.
    """
    _figures(rule)
    for atom in (rule.head, *rule.body):
        _atom(atom)


def line(rule: Rule) -> str:
    """`rule` as AMIE prints it, without the end of the line.

    Raises:
        Invalid: as `check` says.
    """
    head_coverage, pca_confidence, pca_body_size, functional = _figures(rule)
    is_computed = rule.body_size > 0
    cells = (
        "".join(f"{_atom(atom)}{BETWEEN}" for atom in rule.body) + ARROW + _atom(rule.head),
        figures.decimal(head_coverage),
        figures.decimal(rule.confidence) if is_computed else figures.NOT_COMPUTED,
        figures.decimal(pca_confidence),
        str(rule.support),
        str(rule.body_size) if is_computed else figures.NOT_COMPUTED,
        str(pca_body_size),
        _variable(functional),
    )
    return "\t".join(cells)


def _figures(rule: Rule) -> tuple[float, float, int, int]:
    """Head coverage, PCA confidence, PCA body size and functional variable."""
    found = (rule.head_coverage, rule.pca_confidence, rule.pca_body_size, rule.functional)
    if found[0] is None or found[1] is None or found[2] is None or found[3] is None:
        raise Invalid("AMIE's columns need rules with head coverage and PCA confidence", hint="export as json")
    return found[0], found[1], found[2], found[3]


def _atom(atom: Atom) -> str:
    return BETWEEN.join((_term(atom.subject), _name(atom.relation), _term(atom.object)))


def _term(term: Term) -> str:
    if isinstance(term, int):
        return _variable(term)
    if term.startswith(MARK):
        raise Invalid(f"entity {term!r} would be read as a variable in AMIE's notation", hint="export as json")
    return _name(term)


def _variable(number: int) -> str:
    return MARK + (LETTERS[number] if number < len(LETTERS) else f"v{number}")


def _name(name: str) -> str:
    if not name or name != name.strip() or BETWEEN in name or any(sign in name for sign in "\t\n\r"):
        said = "AMIE's notation cannot hold a name with a tab, a line end, two spaces or spaces around it"
        raise Invalid(f"{name!r}: {said}", hint="export as json")
    return name
