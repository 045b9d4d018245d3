"""What commands print: JSON for programs, aligned columns for people."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

SHOWN = 300
"""Characters of a long text."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def print_json(value: Any) -> None:
    """`value` as one JSON document."""
    typer.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def print_lines_as_json(chunks: Iterable[bytes]) -> None:
    """JSON lines as one array, as they arrive."""
    separator, lines = "[", _lines(chunks)
    for line in lines:
        typer.echo(separator + line.decode(), nl=False)
        separator = ",\n "
    typer.echo("]" if separator != "[" else "[]")


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns as wide as their widest cell; numbers to the right."""
    cells = [list(head), *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    for row in cells:
        typer.echo("  ".join(_aligned(cell, width) for cell, width in zip(row, widths, strict=True)).rstrip())


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """One name and value per line; what is not known is left out."""
    for name, value in pairs:
        if value not in (None, "", {}, []):
            typer.echo(f"  {name:<16}{value}")


def shortened(value: Any) -> Any:
    """A long text up to `SHOWN` characters; anything else as it is."""
    return f"{value[:SHOWN]} ..." if isinstance(value, str) and len(value) > SHOWN else value


def waits(found: Any, now: datetime | None = None) -> str:
    """Such as "for Elasticsearch at 127.0.0.1:9200 since 12:04, next try in 8 s"; the time of day is the reader's."""
    since = datetime.fromisoformat(found["since"]).astimezone()
    left_s = (datetime.fromisoformat(found["next_try"]) - (now or datetime.now(UTC))).total_seconds()
    following = f"next try in {left_s:.0f} s" if left_s >= 1 else "trying now"
    return f"for {found['what']} since {since:%H:%M}, {following}"


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _aligned(cell: str, width: int) -> str:
    return cell.rjust(width) if cell.replace(".", "").isdecimal() else cell.ljust(width)
