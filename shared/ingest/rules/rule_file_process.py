"""Read a file of rules in a process of its own (`row_process`): TLogic's files are single JSON documents, which may
take forty times their size in memory.
"""

import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import IO

import msgspec

from shared.contracts import canonical
from shared.contracts.rules import Miner, Rule
from shared.errors import TooLarge
from shared.ingest import lines, row_process
from shared.ingest.lines import Row
from shared.ingest.rules import bank, reading
from shared.ingest.rules.limits import RuleFileLimits
from shared.ingest.rules.reading import Format, Incoming

MEMORY_BYTES = 512 << 20
HINT = "split it, or remove rules of low confidence"


class _Beginning(msgspec.Struct, frozen=True):
    """The first row, before the rules."""

    miner: Miner
    header: bank.Header | None


def read(file: IO[bytes], source: str, format: Format, limits: RuleFileLimits) -> Incoming:  # noqa: A002 - the API's word
    """Read the rules of `file`, which must be one of the operating system, as `reading.read` does. Close `rules` to end
    the process.

    Raises:
        Invalid, TooLarge: as `reading.read` raises them; also where it needs more memory or time than the process may
            take.
    """
    arguments = (source, format.value, *map(str, limits))
    rows = row_process.read_rows(__name__, arguments, file, source, "file of rules", HINT)
    beginning = msgspec.convert(lines.fields(next(rows)[2]), _Beginning)
    return Incoming(beginning.miner, _decode_rules(rows), beginning.header)


def _decode_rules(rows: Generator[Row, None, None]) -> Iterator[Rule]:
    decode = msgspec.json.Decoder(Rule).decode
    with closing(rows):
        for _, _, row in rows:
            assert isinstance(row, bytes)  # noqa: S101 - `_read_rows` yields no defects
            yield decode(row)


def main(source: str, format: str, *limits: str) -> None:  # noqa: A002
    """Write the rules of the file on stdin."""
    allowed = RuleFileLimits(*map(int, limits))
    row_process.write_rows(lambda file: _read_rows(file, source, Format(format), allowed), MEMORY_BYTES)


def _read_rows(file: IO[bytes], source: str, format: Format, limits: RuleFileLimits) -> Iterator[bytes]:  # noqa: A002
    try:
        incoming = reading.read(file, source, format, limits)
        yield canonical.encode(_Beginning(incoming.miner, incoming.header))
        yield from map(canonical.encode, incoming.rules)
    except TooLarge as error:
        raise TooLarge(error.message.removeprefix(source).removeprefix(":").strip()) from error


if __name__ == "__main__":
    main(*sys.argv[1:])
