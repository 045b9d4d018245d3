"""`mathrag rules import` and `rules export`: banks from files and as files."""

import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from mathrag.cli.failures import reported
from mathrag.cli.output import AsJson, print_json
from mathrag.client import rule_files
from mathrag.client.client import Client
from mathrag.client.errors import Failed
from mathrag.client.rules import RuleBank
from shared.ingest import text_files
from shared.ingest.rules import tlogic
from shared.ingest.rules.limits import DEFAULT
from shared.ingest.rules.reading import Format

CHUNK = 1 << 20
_UPLOAD = re.compile(r"^upload\b")


class ExportFormat(StrEnum):
    """How a bank is written."""

    AMIE = "amie"
    JSON = "json"


ImportName = Annotated[str, typer.Argument(metavar="NAME", help="What you call the bank.")]
From = Annotated[Path, typer.Option("--from", help="Rules of AMIE, TLogic or AnyBURL, or an exported bank; gzip, too.")]
FormatOption = Annotated[Format, typer.Option("--format", help="Whose file it is; auto: as its first lines say.")]
Relations = Annotated[
    Path | None, typer.Option(help="tlogic: relation2id.json of its data, the names of the file's numbers.")
]
Graph = Annotated[str | None, typer.Option(help="Refuse rules with relations that this graph does not have.")]
ExportName = Annotated[str, typer.Argument(metavar="NAME", help="Of the bank.")]
ExportOption = Annotated[
    ExportFormat, typer.Option("--format", help="json: all of it, to import elsewhere; amie: AMIE's columns.")
]
Out = Annotated[Path | None, typer.Option(help="File to write; else standard output.")]
Force = Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")]


def import_bank(
    name: ImportName,
    source: From,
    format: FormatOption = Format.AUTO,  # noqa: A002
    relations: Relations = None,
    graph: Graph = None,
    as_json: AsJson = False,
) -> None:
    """Store the rules of a file as a bank. The same import again is harmless."""
    with reported(as_json=as_json), Client() as client:
        content = _chunks(source) if relations is None else _with_names(source, relations, format)
        bank = _send(client, name, content, source, format, graph)
        if as_json:
            print_json(bank)
            return
        typer.echo(f"rule bank {name}: {bank['rules']} rules of {bank['miner']}")
        typer.echo(f"  next: mathrag rules show {name}")


def _send(
    client: Client,
    name: str,
    content: Iterator[bytes],
    source: Path,
    format: Format,  # noqa: A002
    graph: str | None,
) -> RuleBank:
    """What the server says about the upload is said about the file."""
    try:
        return client.send(rule_files.imported(name, content, format.value, graph))
    except Failed as failed:
        hint = failed.hint
        if tlogic.MAP in (hint or ""):
            hint = "name relation2id.json of the data that TLogic learned from: --relations FILE"
        raise Failed(failed.kind, _UPLOAD.sub(lambda _: str(source), failed.message), hint) from failed


def _chunks(source: Path) -> Iterator[bytes]:
    with source.open("rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _with_names(source: Path, relations: Path, format: Format) -> Iterator[bytes]:  # noqa: A002
    if format not in (Format.AUTO, Format.TLOGIC):
        raise Failed("usage", f"--relations: files of {format} name their relations", hint="leave it out")
    return iter([tlogic.together(_whole(source), _whole(relations))])


def _whole(path: Path) -> bytes:
    with path.open("rb") as file:
        return text_files.whole(file, str(path), DEFAULT.document_bytes)


def export(
    name: ExportName,
    format: ExportOption = ExportFormat.JSON,  # noqa: A002
    out: Out = None,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a bank to a file, or to standard output."""
    with reported(as_json=as_json), Client() as client:
        request = rule_files.exported(name, format.value)
        if out is None:
            sys.stdout.buffer.writelines(client.stream(request))
            sys.stdout.buffer.flush()
            return
        if out.exists() and not force:
            raise Failed("conflict", f"{out} is there already", hint="another file, or --force")
        client.save(request, out)
        if client.shows:
            return
        if as_json:
            print_json({"bank": name, "file": str(out), "format": format.value})
        else:
            typer.echo(f"rule bank {name} is in {out}")
