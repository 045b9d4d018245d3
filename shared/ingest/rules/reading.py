"""A file of rules in whatever format it is: recognised by how it begins, then read as a stream."""

import hashlib
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import IO, NamedTuple

from shared.contracts import canonical
from shared.contracts.rules import Miner, Rule
from shared.errors import Invalid, TooLarge
from shared.ingest import text_files
from shared.ingest.lines import BOM
from shared.ingest.rows import HEAD
from shared.ingest.rules import amie, anyburl, bank, tlogic
from shared.ingest.rules.limits import DEFAULT, Limits
from shared.ingest.text_files import Sound


class Format(StrEnum):
    """Whose file it is."""

    AUTO = "auto"
    """As its first lines say."""
    AMIE = "amie"
    TLOGIC = "tlogic"
    ANYBURL = "anyburl"
    JSON = "json"
    """Our own."""


class Incoming(NamedTuple):
    """What a file of rules holds."""

    miner: Miner
    rules: Iterator[Rule]
    header: bank.Header | None
    """Of our own file."""


def read(
    file: IO[bytes],
    source: str,
    format: Format = Format.AUTO,  # noqa: A002 - what the API calls it
    limits: Limits = DEFAULT,
) -> Incoming:
    """The rules of `file`, packed by gzip or not, from where it stands; each is there once.

    Raises:
        Invalid: the file is not of that format, or of none. Later on: a rule cannot be used (`InvalidLine` where it has
            a line), comes twice, or there is none.
        TooLarge: there is more than `limits` allow; of all but a JSON document, later on.
    """
    start = file.tell()
    head = text_files.begin(file, source, HEAD)
    file.seek(start)
    header = None
    match recognised(head, source, format):
        case Format.AMIE:
            miner: Miner = "amie"
            found = amie.read(_lines(file, source, limits), source)
        case Format.ANYBURL:
            miner, found = "anyburl", anyburl.read(_lines(file, source, limits), source)
        case Format.TLOGIC:
            miner, found = "tlogic", tlogic.read(text_files.whole(file, source, limits.document_bytes), source)
        case _:
            lines = _lines(file, source, limits)
            header = bank.header(lines, source)
            miner, found = header.miner, bank.read(lines, source, header.rules)
    return Incoming(miner, _distinct(found, source, limits, may_be_empty=header is not None), header)


def _lines(file: IO[bytes], source: str, limits: Limits) -> Iterator[Sound]:
    content = text_files.unpacked(file, source, limits.unpacked_bytes)
    return text_files.sound(text_files.decoded(content, source, limits.line_bytes), source)


def recognised(head: bytes, source: str, format: Format = Format.AUTO) -> Format:  # noqa: A002
    """The format of what begins with `head`.

    Raises:
        Invalid: it is none, or `format` says otherwise.
    """
    found = _guess(head.removeprefix(BOM).decode("utf-8", "replace"))
    if found is None and format is not Format.AUTO:
        return format
    if found is None:
        said = "is not recognised as AMIE's TSV, TLogic's JSON, AnyBURL's text or an exported bank"
        raise Invalid(f"{source}: {said}", hint="name its format; see docs/rules.md")
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


def _distinct(found: Iterator[tuple[str, Rule]], source: str, limits: Limits, *, may_be_empty: bool) -> Iterator[Rule]:
    """The rules, unless one comes twice, whatever its figures are.

    Raises:
        Invalid, TooLarge: as `read` says.
    """
    seen: set[bytes] = set()
    for place, rule in found:
        key = hashlib.blake2b(canonical.encode((rule.head, rule.body, rule.kind)), digest_size=12).digest()
        if key in seen:
            raise Invalid(f"{source}, {place}: the rule was there before; remove one of them")
        if len(seen) == limits.rules:
            raise TooLarge(f"{source}: a bank may have {limits.rules} rules; leave out those of low confidence")
        if _has_nul(rule):
            raise Invalid(f"{source}, {place}: a name holds the character \\u0000; remove it")
        seen.add(key)
        yield rule
    if not seen and not may_be_empty:
        raise Invalid(f"{source}: holds no rule", hint="see docs/rules.md for the formats")


def _has_nul(rule: Rule) -> bool:
    """Which only an escape of JSON can smuggle in, and PostgreSQL does not store."""
    names = (name for atom in (rule.head, *rule.body) for name in (atom.relation, atom.subject, atom.object))
    return any("\0" in name for name in names if isinstance(name, str))
