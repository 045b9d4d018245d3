"""Read files of rules: AMIE's TSV, and the exports of this project, which are also written here.

An export has one JSON object a line: a header that describes the bank, then one rule per line. It is complete:
importing it gives the same bank, with the same hash.
"""

import hashlib
import math
from collections.abc import Collection, Iterable, Iterator
from itertools import chain
from typing import IO, Annotated, Literal, NamedTuple

import msgspec

from mathrag.errors import Invalid, InvalidLine, TooLarge
from mathrag.messages import format_count
from mathrag.reading import rows
from mathrag.reading.lines import MAX_NAME_CHARS, Defect, locate_defect
from mathrag.reading.rows import Sound
from shared import canonical
from shared.calls import StoredMining
from shared.ingest import amie
from shared.ingest.amie import MOST_ATOMS, MOST_COUNT
from shared.replies import Miner, Rule

FORMAT: Literal["mathrag-rules"] = "mathrag-rules"
NAMED = 5
"""Unknown relations that an error names."""
Hash = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class RuleFileLimits(NamedTuple):
    """Limits on one file."""

    unpacked_bytes: int = 1 << 30
    line_bytes: int = 1 << 16
    rules: int = 1_000_000


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The first line of an export."""

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
    limits: StoredMining | None = None
    """Limits with which the rules were mined; imported rules have none."""


class Incoming(NamedTuple):
    """The content of a file of rules."""

    rules: Iterator[Rule]
    header: Header | None
    """None: the rules are AMIE's."""


def format_line(entry: Header | Rule) -> bytes:
    """Format the header or a rule as a line of an export."""
    return canonical.encode(entry) + b"\n"


def read(file: IO[bytes], source: str, limits: RuleFileLimits) -> Incoming:
    """Read the rules of `file` from its current position, compressed with gzip or not; rules are distinct.

    Raises:
        InvalidLine: the first line begins a JSON object, but is not the header of an export; or this is not a text.
        Later
            on: a line cannot be used.
        Invalid: later on, where a rule comes twice, the file has none, or their number differs from the header's.
        TooLarge: there is more than `limits` allow; most of it later on.
    """
    content = rows.open_unpacked(file, source, limits.unpacked_bytes)
    lines = rows.require_sound(rows.decode_lines(content, source, limits.line_bytes), source)
    number, first = next(lines, (1, ""))
    if not first.lstrip().startswith("{"):
        found = amie.read(chain([(number, first)], lines), source)
        return Incoming(_refuse_duplicates(found, source, limits), None)
    try:
        header = msgspec.json.decode(first, type=Header)
    except (msgspec.DecodeError, RecursionError) as error:
        problem = f"is not the header of a bank that this release can read ({error})"
        raise InvalidLine(source, number, problem) from error
    found = _read_export(lines, source, header.rules)
    return Incoming(_refuse_duplicates(found, source, limits), header)


def _refuse_duplicates(found: Iterator[tuple[str, Rule]], source: str, limits: RuleFileLimits) -> Iterator[Rule]:
    """Yield the rules; a rule that occurs twice is an error, even with other figures."""
    seen: set[bytes] = set()
    for place, rule in found:
        key = hashlib.blake2b(canonical.encode((rule.head, rule.body, rule.kind)), digest_size=12).digest()
        if key in seen:
            raise Invalid(f"{source}, {place}: the rule occurs twice; remove one")
        if len(seen) == limits.rules:
            raise TooLarge(f"{source} has more than {limits.rules} rules; remove those of low confidence")
        if problem := _find_unusable_name(rule):
            raise Invalid(f"{source}, {place}: {problem}")
        seen.add(key)
        yield rule


def _find_unusable_name(rule: Rule) -> str | None:
    """Return the problem of a name: JSON can escape a NUL, which PostgreSQL cannot store."""
    for atom in (rule.head, *rule.body):
        for name in (atom.relation, atom.subject, atom.object):
            if isinstance(name, str) and "\0" in name:
                return "a name holds the character \\u0000; remove it"
            if isinstance(name, str) and len(name) > MAX_NAME_CHARS:
                return f"the name {name[:40]!r}... has {len(name)} characters, more than {MAX_NAME_CHARS}; shorten it"
    return None


def _read_export(lines: Iterator[Sound], source: str, promised: int) -> Iterator[tuple[str, Rule]]:
    """Yield each rule below the header with its place ("line 7")."""
    found = 0
    decode = msgspec.json.Decoder(Rule).decode
    for number, line in lines:
        found += 1
        try:
            rule = decode(line)
            _check_variables(rule)
            _check_figures(rule)
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidLine(source, number, f"is not a valid rule ({error}); export the bank again") from error
        except Defect as defect:
            raise locate_defect(defect, source, number) from defect
        yield f"line {number}", rule
    if found != promised:
        problem = f"holds {found} rules, but its first line says {promised}; copy or export the file again"
        raise Invalid(f"{source}: {problem}")


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
        raise Defect("a confidence or the head coverage is not from 0 to 1, or `curve` has an infinite number")
    counts = (rule.support, rule.body_size, rule.pca_body_size or 0)
    if not all(0 <= count <= MOST_COUNT for count in counts) or rule.functional not in (None, 0, 1):
        raise Defect(f"a count is not from 0 to {MOST_COUNT}, or `functional` is neither 0 nor 1")


def only_known(rules: Iterable[Rule], relations: Collection[str], graph: str) -> Iterator[Rule]:
    """Yield the rules; raise an error at the end if they named a relation that the graph does not have.

    Raises:
        Invalid: they did; the message has the first five and how many there are.
    """
    unknown: dict[str, None] = {}
    for rule in rules:
        names = (atom.relation for atom in (rule.head, *rule.body))
        unknown.update(dict.fromkeys(name for name in names if name not in relations))
        yield rule
    if unknown:
        first = ", ".join(map(repr, list(unknown)[:NAMED]))
        more = f" and {len(unknown) - NAMED} more" if len(unknown) > NAMED else ""
        named = format_count(len(unknown), "relation")
        said = f"the rules name {named} that graph {graph!r} does not have: {first}{more}"
        raise Invalid(said, hint="import them without the graph, or for the graph that they were mined from")
