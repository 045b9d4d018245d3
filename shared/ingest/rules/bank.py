"""Our own file of a bank: JSON lines, the first of which says what the bank is, then a rule a line.

It is complete: an import of it gives the same bank, with the same hash.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from shared.contracts import canonical
from shared.contracts.mining import Mining
from shared.contracts.rules import Miner, Rule
from shared.errors import Invalid, InvalidLine
from shared.ingest.lines import Defect, located
from shared.ingest.rules.figures import MOST
from shared.ingest.rules.terms import MOST_ATOMS
from shared.ingest.text_files import Sound

FORMAT: Literal["mathrag-rules"] = "mathrag-rules"
Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The first line."""

    format: Literal["mathrag-rules"]
    version: Literal[1]
    hash: Hash
    """Of the bank, which is taken over graph, miner, limits and every rule in order."""
    miner: Miner
    """What the figures mean."""
    rules: Annotated[int, msgspec.Meta(ge=0)]
    """How many lines follow."""
    graph_hash: Hash | None = None
    """Of the graph that the rules were mined from; none of imported rules."""
    limits: Mining | None = None
    """That the rules were mined with; none of imported rules."""


_RULE = msgspec.json.Decoder(Rule)


def line(entry: Header | Rule) -> bytes:
    """A line of the file."""
    return canonical.encode(entry) + b"\n"


def header(lines: Iterator[Sound], source: str) -> Header:
    """What the first line says.

    Raises:
        InvalidLine: it is no header of a bank.
    """
    number, line = next(lines, (1, ""))
    try:
        return msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidLine(source, number, f"is no header of a bank that this release reads ({error})") from error


def read(lines: Iterator[Sound], source: str, promised: int) -> Iterator[tuple[str, Rule]]:
    """Each rule below the header with its place ("line 7").

    Raises:
        Invalid: there are fewer or more rules than the header promised.
        InvalidLine: a line is no rule.
    """
    found = 0
    for number, line in lines:
        found += 1
        try:
            yield f"line {number}", _rule(line)
        except Defect as defect:
            raise located(defect, source, number) from defect
    if found != promised:
        raise Invalid(f"{source}: holds {found} rules, its first line says {promised}; copy or export the file again")


def _rule(line: str) -> Rule:
    try:
        rule = _RULE.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Defect(f"is no rule ({error})") from error
    _check_variables(rule)
    _check_figures(rule)
    return rule


def _check_variables(rule: Rule) -> None:
    if len(rule.body) > MOST_ATOMS:
        raise Defect(f"has {len(rule.body)} atoms in its body; at most {MOST_ATOMS} are read")
    if not {term for term in (rule.head.subject, rule.head.object) if isinstance(term, int)} <= {0, 1}:
        raise Defect("the head has a variable other than 0 and 1")
    known = 2
    for term in (term for atom in rule.body for term in (atom.subject, atom.object) if isinstance(term, int)):
        known += term == known
        if not 0 <= term < known:
            raise Defect(f"variable {term} is out of order; the head's are 0 and 1, the body counts on from 2")


def _check_figures(rule: Rule) -> None:
    shares = (rule.confidence, rule.head_coverage or 0.0, rule.pca_confidence or 0.0)
    if not all(0 <= share <= 1 for share in shares) or not all(map(math.isfinite, rule.curve)):
        raise Defect("a confidence or the head coverage is not from 0 to 1")
    counts = (rule.support, rule.body_size, rule.pca_body_size or 0)
    if not all(0 <= count <= MOST for count in counts) or rule.functional not in (None, 0, 1):
        raise Defect(f"a count is not from 0 to {MOST}, or `functional` is neither 0 nor 1")
