"""What commands print: JSON for programs, aligned columns for people."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import typer

SHOWN = 300
"""Characters of a long text."""
SMALL = 0.0001
"""Of a p-value that is not told from 0."""
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


def accuracy(figure: Any) -> str:
    """Such as "61.0 % (56.7 to 65.2), 305 of 500"."""
    if figure["value"] is None:
        return "nothing was graded"
    value, low, high = (100 * figure[part] for part in ("value", "low", "high"))
    return f"{value:.1f} % ({low:.1f} to {high:.1f}), {figure['correct']} of {figure['graded']}"


def interval(found: Any) -> str:
    """In per cent, such as "56.6 to 65.2"."""
    return f"{100 * found['low']:.1f} to {100 * found['high']:.1f}"


def counted(counts: dict[str, int]) -> str:
    """Such as "judge 40, generate 100"; nothing where all are 0."""
    return ", ".join(f"{name} {count}" for name, count in counts.items() if count)


def verdict(test: Any) -> str:
    """A difference between two systems in words, such as "+0.01 (-0.01 to +0.03), p = 0.2800: not separable ..."."""
    if test is None:
        return "too few queries to compare"
    known = test["low"] is not None
    interval = f"{test['low']:+.4f} to {test['high']:+.4f}" if known else "the same on every query, so no interval"
    said = "separable" if test["separable"] else f"not separable on {test['n']} queries"
    p = f"p = {test['adjusted']:.4f}" if test["adjusted"] >= SMALL else f"p < {SMALL}"
    return f"{test['value']:+.4f} ({interval}), {p}: {said}"


def figure(value: float | None) -> str:
    """Four digits."""
    return "-" if value is None else f"{value:.4f}"


def waits(found: Any, now: datetime | None = None) -> str:
    """Such as "for Elasticsearch at 127.0.0.1:9200 since 12:04, next try in 8 s"; the time of day is the reader's."""
    since = datetime.fromisoformat(found["since"]).astimezone()
    left_s = (datetime.fromisoformat(found["next_try"]) - (now or datetime.now(UTC))).total_seconds()
    following = f"next try in {left_s:.0f} s" if left_s >= 1 else "trying now"
    return f"for {found['what']} since {since:%H:%M}, {following}"


def last_line(text: str | None) -> str | None:
    """Where a traceback says what happened; --json has all of it."""
    return text.strip().splitlines()[-1] if text else text


def _cell(value: object) -> str:
    return "-" if value is None else str(value)


def _aligned(cell: str, width: int) -> str:
    return cell.rjust(width) if cell.replace(".", "").isdecimal() else cell.ljust(width)
