"""Print JSON for programs and aligned columns for people."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

MAX_CHARACTERS = 300
"""Characters of a long text that are printed."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]


def print_json(value: Any) -> None:
    """Print `value` as one indented JSON document."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_lines_as_json(chunks: Iterable[bytes]) -> None:
    """Print JSON lines as one array, each as soon as it arrives."""
    separator, lines = "[", _split_lines(chunks)
    for line in lines:
        typer.echo(separator + line.decode(), nl=False)
        separator = ",\n "
    typer.echo("]" if separator != "[" else "[]")


def _split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print columns as wide as their widest cell, with numbers right-aligned and None as "-"."""
    cells = [list(head), *([_format_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        typer.echo("  ".join(_align(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip())


def print_facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Print one name and value per line; empty values are left out."""
    for name, value in pairs:
        if value not in (None, "", {}, []):
            typer.echo(f"  {name:<16}{value}")


def shorten(value: Any) -> Any:
    """Return the first `MAX_CHARACTERS` characters of a long text; any other value as it is."""
    return f"{value[:MAX_CHARACTERS]} ..." if isinstance(value, str) and len(value) > MAX_CHARACTERS else value


def describe_wait(found: Any, now: datetime | None = None) -> str:
    """Return text such as "for Elasticsearch at 127.0.0.1:9200 since 12:04, next try in 8 s", in local time."""
    since = datetime.fromisoformat(found["since"]).astimezone()
    if found["next_try"] is None:
        return f"for {found['what']}: {found['said']}"
    left_s = (datetime.fromisoformat(found["next_try"]) - (now or datetime.now(UTC))).total_seconds()
    following = f"next try in {left_s:.0f} s" if left_s >= 1 else "trying now"
    return f"for {found['what']} since {since:%H:%M}, {following}"


def _format_cell(value: object) -> str:
    return "-" if value is None else str(value)


def _align(cell: str, width: int) -> str:
    return cell.rjust(width) if cell.replace(".", "").isdecimal() else cell.ljust(width)
