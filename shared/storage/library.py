"""Cache documents by hash in each process, for replays and prompts."""

from collections.abc import Iterable

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.documents import Document
from shared.contracts.replies import Reply, Retrieved
from shared.recent import LruCache

DOCUMENTS = text("SELECT hash, problem, body FROM documents WHERE hash = ANY(:hashes)")
CAPACITY = 50_000
"""Number of cached documents; MATH's 7,500 take about 7 MB."""


class LibraryCache:
    """An LRU cache of documents. Documents never change, so nothing is ever invalidated."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._recent: LruCache[Document] = LruCache(capacity)

    async def documents(self, connection: AsyncConnection, hashes: Iterable[str]) -> dict[str, Document]:
        """Load the documents with these hashes, with one statement for those that are not cached.

        A document that the database does not have is left out, so that reading it raises KeyError.
        """
        wanted = set(hashes)
        found = self._recent.find(wanted)
        if missing := sorted(wanted - found.keys()):
            rows = await connection.execute(DOCUMENTS, {"hashes": [bytes.fromhex(hash_) for hash_ in missing]})
            found |= {row.hash.hex(): Document(problem=row.problem, text=row.body) for row in rows}
        self._recent.keep(found)
        return found


def list_mentioned_documents(replies: Iterable[Reply]) -> set[str]:
    """Return the hashes of the documents in retrieval replies."""
    return {hit.document for reply in replies if isinstance(reply, Retrieved) for hit in reply.hits}
