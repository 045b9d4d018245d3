"""Documents by hash, kept per process: what replays and prompts read their texts from."""

from collections.abc import Iterable

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.documents import Document
from shared.contracts.replies import Reply, Retrieved
from shared.recent import Recent

DOCUMENTS = text("SELECT hash, problem, body FROM documents WHERE hash = ANY(:hashes)")
CAPACITY = 50_000
"""Documents kept; MATH's 7,500 take about 7 MB."""


class LibraryCache:
    """An LRU cache of documents. Documents never change, so nothing is ever invalidated."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._recent: Recent[Document] = Recent(capacity)

    async def documents(self, connection: AsyncConnection, hashes: Iterable[str]) -> dict[str, Document]:
        """The documents with these hashes, for the caller to hold; one statement for those that are not in memory.

        A document that the database does not have is missing here, too: whoever reads it gets the KeyError.
        """
        wanted = set(hashes)
        found = self._recent.find(wanted)
        if missing := sorted(wanted - found.keys()):
            rows = await connection.execute(DOCUMENTS, {"hashes": [bytes.fromhex(hash_) for hash_ in missing]})
            found |= {row.hash.hex(): Document(problem=row.problem, text=row.body) for row in rows}
        self._recent.keep(found)
        return found


def mentioned(replies: Iterable[Reply]) -> set[str]:
    """Hashes of the documents that retrieval replies mention."""
    return {hit.document for reply in replies if isinstance(reply, Retrieved) for hit in reply.hits}
