"""Documents of a corpus as users know them: by their own ids, with their texts up to a bound."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

LONGEST_TEXT = 4_000
"""Characters of a text that an answer shows; `GET /v1/jobs/{job}/samples/{index}` has all of it."""
# A corpus may hold the same content under several ids: the first one stands for it.
OF_CORPUS = text("""
    SELECT DISTINCT ON (d.hash) d.hash, c.external_id, left(d.problem, :n) AS problem, left(d.body, :n) AS body,
        greatest(length(d.problem), length(d.body)) > :n AS truncated
    FROM documents d LEFT JOIN (corpus_documents c JOIN corpora k ON k.id = c.corpus_id AND k.name = :corpus)
        ON c.hash = d.hash
    WHERE d.hash = ANY(:hashes) ORDER BY d.hash, c.ordinal""")


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A document as an answer shows it."""

    id: str | None
    """Its id in the corpus's upload; null where the corpus does not hold it."""
    hash: str
    """Of its content: how jobs and provenance name it."""
    problem: str
    text: str
    truncated: bool
    """Problem or text are longer than what is shown."""


async def shown(connection: AsyncConnection, corpus: str | None, hashes: Sequence[str]) -> dict[str, Shown]:
    """The documents with these hashes, by hash."""
    values = {"corpus": corpus, "hashes": [bytes.fromhex(hash_) for hash_ in hashes], "n": LONGEST_TEXT}
    return {
        row.hash.hex(): Shown(
            id=row.external_id, hash=row.hash.hex(), problem=row.problem, text=row.body, truncated=row.truncated
        )
        for row in await connection.execute(OF_CORPUS, values)
    }
