"""Stream the rules of a file in any known format, which its beginning identifies."""

import hashlib
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import IO, NamedTuple

from shared.contracts import canonical
from shared.contracts.rules import Miner, Rule
from shared.errors import Invalid, TooLarge
from shared.ingest import text_files
from shared.ingest.fields import MAX_NAME_CHARS
from shared.ingest.lines import BOM
from shared.ingest.rows import HEAD
from shared.ingest.rules import amie, anyburl, bank, tlogic
from shared.ingest.rules.limits import DEFAULT, RuleFileLimits
from shared.ingest.text_files import Sound


class Format(StrEnum):
    """The format of a file of rules."""

    AUTO = "auto"
    """Recognised by the first lines."""
    AMIE = "amie"
    TLOGIC = "tlogic"
    ANYBURL = "anyburl"
    JSON = "json"
    """A bank that was exported by this project."""


class Incoming(NamedTuple):
    """The content of a file of rules."""

    miner: Miner
    rules: Iterator[Rule]
    header: bank.Header | None
    """Header, if the file is an exported bank."""


def read(
    file: IO[bytes],
    source: str,
    format: Format = Format.AUTO,  # noqa: A002 - what the API calls it
    limits: RuleFileLimits = DEFAULT,
) -> Incoming:
    """Read the rules of `file` from its current position, compressed with gzip or not; rules are distinct.

    Raises:
        Invalid: the file is not of that format, or of none. Later on: a rule cannot be used (`InvalidLine` where it has
            a line), comes twice, or there is none.
        TooLarge: there is more than `limits` allow; of all but a JSON document, later on.
    """
    start = file.tell()
    head = text_files.read_beginning(file, source, HEAD)
    file.seek(start)
    header = None
    match recognise(head, source, format):
        case Format.AMIE:
            miner: Miner = "amie"
            found = amie.read(_lines(file, source, limits), source)
        case Format.ANYBURL:
            miner, found = "anyburl", anyburl.read(_lines(file, source, limits), source)
        case Format.TLOGIC:
            miner, found = "tlogic", tlogic.read(text_files.read_whole(file, source, limits.document_bytes), source)
        case _:
            lines = _lines(file, source, limits)
            header = bank.header(lines, source)
            miner, found = header.miner, bank.read(lines, source, header.rules)
    return Incoming(miner, _refuse_duplicates(found, source, limits, may_be_empty=header is not None), header)


def _lines(file: IO[bytes], source: str, limits: RuleFileLimits) -> Iterator[Sound]:
    content = text_files.open_unpacked(file, source, limits.unpacked_bytes)
    return text_files.require_sound(text_files.decode_lines(content, source, limits.line_bytes), source)


def recognise(head: bytes, source: str, format: Format = Format.AUTO) -> Format:  # noqa: A002
    """Return the format of a file that begins with `head`.

    Raises:
        Invalid: it is none, or `format` says otherwise.
    """
    found = _guess(head.removeprefix(BOM).decode("utf-8", "replace"))
    if found is None and format is not Format.AUTO:
        return format
    if found is None:
        problem = "is not recognised as AMIE's TSV, TLogic's JSON, AnyBURL's text or an exported bank"
        raise Invalid(f"{source}: {problem}", hint="name the format (docs/how-to/rules.md)")
    if format not in (Format.AUTO, found):
        raise Invalid(f"{source}: looks like {found}, not {format}", hint=f"import it as `{found}`, or as `auto`")
    return found


def _guess(head: str) -> Format | None:
    if head.lstrip().startswith("{"):
        return Format.JSON if f'"format":"{bank.FORMAT}"' in head.partition("\n")[0].replace(" ", "") else Format.TLOGIC
    lines = head.split("\n")
    if any(re.match(r"\d+\t\d+\t[^\t]+\t.*\) <=", line) for line in lines):
        return Format.ANYBURL
    is_amie = any("\t" in line and (amie.ARROW in line or line.startswith("Rule\t")) for line in lines)
    return Format.AMIE if is_amie else None


def _refuse_duplicates(
    found: Iterator[tuple[str, Rule]], source: str, limits: RuleFileLimits, *, may_be_empty: bool
) -> Iterator[Rule]:
    """Yield the rules; a rule that occurs twice is an error, even with other figures.

    Raises:
        Invalid, TooLarge: as `read` says.
    """
    seen: set[bytes] = set()
    for place, rule in found:
        key = hashlib.blake2b(canonical.encode((rule.head, rule.body, rule.kind)), digest_size=12).digest()
        if key in seen:
            raise Invalid(f"{source}, {place}: the rule occurs twice; remove one")
        if len(seen) == limits.rules:
            raise TooLarge(f"{source}: has more than {limits.rules} rules; remove those of low confidence")
        if problem := _find_unusable_name(rule):
            raise Invalid(f"{source}, {place}: {problem}")
        seen.add(key)
        yield rule
    if not seen and not may_be_empty:
        raise Invalid(f"{source}: has no rules", hint="docs/how-to/rules.md describes the formats")


def _find_unusable_name(rule: Rule) -> str | None:
    """Return what is wrong with a name: JSON can escape a NUL, which PostgreSQL cannot store."""
    for atom in (rule.head, *rule.body):
        for name in (atom.relation, atom.subject, atom.object):
            if isinstance(name, str) and "\0" in name:
                return "a name holds the character \\u0000; remove it"
            if isinstance(name, str) and len(name) > MAX_NAME_CHARS:
                return f"the name {name[:40]!r}... has {len(name)} characters, more than {MAX_NAME_CHARS}; shorten it"
    return None
