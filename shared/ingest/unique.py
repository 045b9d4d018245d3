"""Check that each id occurs once in an upload."""

from shared.ingest.lines import Defect


class UniqueIds:
    """Remembers where each id was first seen; about 100 bytes per id."""

    def __init__(self) -> None:
        # Hashes instead of ids: 64 bits with a secret of the process, so that nobody can make two collide.
        self._lines: dict[int, int] = {}
        self._sources: dict[int, str] = {}
        self._usual: str | None = None
        """Source of the first line; only ids of other sources are stored with theirs."""

    def check(self, identifier: str | None, source: str, line: int) -> None:
        """Record `identifier`; None is never a duplicate.

        Raises:
            Defect: the id was seen before; the message says where.
        """
        if identifier is None:
            return
        self._usual = self._usual or source
        key = hash(identifier)
        if key in self._lines:
            where = f"{self._sources.get(key, self._usual)}, line {self._lines[key]}"
            raise Defect(f"repeats the id {identifier!r} of {where}; rename one")
        self._lines[key] = line
        if source != self._usual:
            self._sources[key] = source
