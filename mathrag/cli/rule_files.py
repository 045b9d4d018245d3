"""`mathrag rules import` and `rules export`: read rule banks from files, and write them to files."""

import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.failures import report_errors
from mathrag.cli.output import AsJson, print_json
from mathrag.client import rule_files
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.rules import RuleBank
from shared.ingest import text_files
from shared.ingest.rules import tlogic
from shared.ingest.rules.limits import DEFAULT
from shared.ingest.rules.reading import Format
from shared.plurals import format_count

CHUNK = 1 << 20
_UPLOAD = re.compile(r"^upload\b")


class ExportFormat(StrEnum):
    """How a bank is written."""

    AMIE = "amie"
    JSON = "json"


ImportName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the new rule bank.")]
From = Annotated[
    Path, typer.Option("--from", help="Rules of AMIE, TLogic or AnyBURL, or an exported bank; may be gzipped.")
]
FormatOption = Annotated[
    Format, typer.Option("--format", help="Format of the file; auto detects it from the first lines.")
]
Relations = Annotated[
    Path | None, typer.Option(help="tlogic: relation2id.json of its data, which names the relations.")
]
Graph = Annotated[str | None, typer.Option(help="Refuse rules with relations that this graph lacks.")]
ExportName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the rule bank.")]
ExportOption = Annotated[
    ExportFormat, typer.Option("--format", help="json: everything, to import elsewhere; amie: AMIE's columns.")
]
Out = Annotated[Path | None, typer.Option(help="File to write (default: standard output).")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]


def import_bank(
    name: ImportName,
    source: From,
    format: FormatOption = Format.AUTO,  # noqa: A002
    relations: Relations = None,
    graph: Graph = None,
    as_json: AsJson = False,
) -> None:
    """Import the rules of a file as a rule bank. Importing the same again changes nothing."""
    with report_errors(as_json=as_json), Client() as client:
        content = _read_chunks(source) if relations is None else _add_names(source, relations, format)
        bank = _send(client, name, content, source, format, graph)
        if as_json:
            print_json(bank)
            return
        typer.echo(f"rule bank {name}: {format_count(bank['rules'], 'rule')} of {bank['miner']}")
        typer.echo(f"  next: mathrag rules show {name}")


def _send(
    client: Client,
    name: str,
    content: Iterator[bytes],
    source: Path,
    format: Format,  # noqa: A002
    graph: str | None,
) -> RuleBank:
    """Send the content; an error of the server names the local file instead of the upload."""
    try:
        return client.send(rule_files.import_bank(name, content, format.value, graph))
    except Failed as failed:
        hint = failed.hint
        if tlogic.MAP in (hint or ""):
            hint = "give the relation2id.json of the data that TLogic learned from: --relations FILE"
        raise Failed(failed.kind, _UPLOAD.sub(lambda _: str(source), failed.message), hint) from failed


def _read_chunks(source: Path) -> Iterator[bytes]:
    with source.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _add_names(source: Path, relations: Path, format: Format) -> Iterator[bytes]:  # noqa: A002
    if format not in (Format.AUTO, Format.TLOGIC):
        raise Failed("usage", f"--relations: files of {format} already name their relations", hint="omit --relations")
    return iter([tlogic.join_files(_read_whole(source), _read_whole(relations))])


def _read_whole(path: Path) -> bytes:
    with path.open("rb") as file:
        return text_files.read_whole(file, str(path), DEFAULT.document_bytes)


def export(
    name: ExportName,
    format: ExportOption = ExportFormat.JSON,  # noqa: A002
    out: Out = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a rule bank to a file or to standard output."""
    with report_errors(as_json=as_json), Client() as client:
        request = rule_files.export_bank(name, format.value)
        if out is None:
            sys.stdout.buffer.writelines(client.stream(request))
            sys.stdout.buffer.flush()
            return
        if out.exists() and not force:
            raise Failed("conflict", f"{out} already exists", hint="choose another file, or --force")
        client.save(request, out)
        if client.shows:
            return
        if as_json:
            print_json({"bank": name, "file": str(out), "format": format.value})
        else:
            typer.echo(f"rule bank {name} is in {out}")
