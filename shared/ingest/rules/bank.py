"""Read and write a rule bank as JSON lines: a header that describes the bank, then one rule per line.

The file is complete: importing it gives the same bank, with the same hash.
"""

import math
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from shared.contracts import canonical
from shared.contracts.mining import Mining
from shared.contracts.rules import Miner, Rule
from shared.errors import Invalid, InvalidLine
from shared.ingest.lines import Defect, locate_defect
from shared.ingest.rules.figures import MOST
from shared.ingest.rules.terms import MOST_ATOMS
from shared.ingest.text_files import Sound

FORMAT: Literal["mathrag-rules"] = "mathrag-rules"
Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The first line of the file."""

    format: Literal["mathrag-rules"]
    version: Literal[1]
    hash: Hash
    """Hash of the bank, taken over graph, miner, limits and every rule in order."""
    miner: Miner
    """The miner, which defines the meaning of the figures."""
    rules: Annotated[int, msgspec.Meta(ge=0)]
    """Number of rules that follow."""
    graph_hash: Hash | None = None
    """Hash of the graph from which the rules were mined; imported rules have none."""
    limits: Mining | None = None
    """Limits with which the rules were mined; imported rules have none."""


_RULE = msgspec.json.Decoder(Rule)


def line(entry: Header | Rule) -> bytes:
    """Format a rule as a line of the file."""
    return canonical.encode(entry) + b"\n"


def header(lines: Iterator[Sound], source: str) -> Header:
    """Read the header on the first line.

    Raises:
        InvalidLine: it is no header of a bank.
    """
    number, line = next(lines, (1, ""))
    try:
        return msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidLine(
            source, number, f"is not the header of a bank that this release can read ({error})"
        ) from error


def read(lines: Iterator[Sound], source: str, promised: int) -> Iterator[tuple[str, Rule]]:
    """Yield each rule below the header with its place ("line 7").

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
            raise locate_defect(defect, source, number) from defect
    if found != promised:
        raise Invalid(
            f"{source}: holds {found} rules, but its first line says {promised}; copy or export the file again"
        )


def _rule(line: str) -> Rule:
    try:
        rule = _RULE.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Defect(f"is not a rule ({error})") from error
    _check_variables(rule)
    _check_figures(rule)
    return rule


def _check_variables(rule: Rule) -> None:
    if len(rule.body) > MOST_ATOMS:
        raise Defect(f"has {len(rule.body)} atoms in its body, but at most {MOST_ATOMS} are read")
    if not {term for term in (rule.head.subject, rule.head.object) if isinstance(term, int)} <= {0, 1}:
        raise Defect("the head has a variable other than 0 and 1")
    known = 2
    for term in (term for atom in rule.body for term in (atom.subject, atom.object) if isinstance(term, int)):
        known += term == known
        if not 0 <= term < known:
            raise Defect(f"variable {term} is out of order; number the head's variables 0 and 1, and the body's from 2")


def _check_figures(rule: Rule) -> None:
    shares = (rule.confidence, rule.head_coverage or 0.0, rule.pca_confidence or 0.0)
    if not all(0 <= share <= 1 for share in shares) or not all(map(math.isfinite, rule.curve)):
        raise Defect("a confidence or the head coverage is not from 0 to 1")
    counts = (rule.support, rule.body_size, rule.pca_body_size or 0)
    if not all(0 <= count <= MOST for count in counts) or rule.functional not in (None, 0, 1):
        raise Defect(f"a count is not from 0 to {MOST}, or `functional` is neither 0 nor 1")
