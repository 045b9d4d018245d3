"""Ids of one upload: each may occur once."""

from shared.errors import InvalidLine


class UniqueIds:
    """Remembers where each id was first seen; memory grows with the number of ids."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[str, int]] = {}

    def check(self, identifier: str | None, source: str, line: int) -> None:
        """Take note of `identifier`; None is never a duplicate.

        Raises:
            InvalidLine: the id was seen before; the message says where.
        """
        if identifier is None:
            return
        where = self._seen.setdefault(identifier, (source, line))
        if where != (source, line):
            raise InvalidLine(source, line, f"repeats the id {identifier!r} of {where[0]}, line {where[1]}; rename one")
