"""Documents by hash, kept per process: what replays and prompts read their texts from."""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import Reply, Retrieved
from shared.contracts.documents import Document

DOCUMENTS = text("SELECT hash, problem, body FROM documents WHERE hash = ANY(:hashes)")
CAPACITY = 50_000
"""Documents kept; MATH's 7,500 take about 7 MB."""


class LibraryCache(Mapping[str, Document]):
    """An LRU of documents. Documents never change, so nothing is ever invalidated."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._documents: OrderedDict[str, Document] = OrderedDict()
        self._capacity = capacity

    async def ensure(self, connection: AsyncConnection, hashes: Iterable[str]) -> None:
        """Have the documents with these hashes in memory; one statement for those that are not.

        A document that the database does not have is missing here, too: whoever reads it gets the KeyError.
        """
        # Not by set operations with the keys: those walk the whole cache.
        wanted = set(hashes)
        missing = [hash_ for hash_ in wanted if hash_ not in self._documents]
        if missing:
            rows = await connection.execute(DOCUMENTS, {"hashes": [bytes.fromhex(hash_) for hash_ in sorted(missing)]})
            for row in rows:
                self._documents[row.hash.hex()] = Document(problem=row.problem, text=row.body)
        for hash_ in wanted:
            if hash_ in self._documents:
                self._documents.move_to_end(hash_)
        while len(self._documents) > max(self._capacity, len(wanted)):
            self._documents.popitem(last=False)

    def __getitem__(self, hash_: str) -> Document:
        return self._documents[hash_]

    def __iter__(self) -> Iterator[str]:
        return iter(self._documents)

    def __len__(self) -> int:
        return len(self._documents)


def mentioned(replies: Iterable[Reply]) -> set[str]:
    """Hashes of the documents that retrieval replies mention."""
    return {hit.document for reply in replies if isinstance(reply, Retrieved) for hit in reply.hits}
