"""Load documents for display: with the users' own ids and with texts up to a limit."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

LONGEST_TEXT = 4_000
"""Longest text that an answer shows, in characters; `GET /v1/jobs/{job}/samples/{index}` has the full text."""
# A corpus may hold the same content under several ids: take the first.
OF_CORPUS = text("""
    SELECT DISTINCT ON (d.hash) d.hash, c.external_id, left(d.problem, :n) AS problem, left(d.body, :n) AS body,
        greatest(length(d.problem), length(d.body)) > :n AS truncated
    FROM documents d LEFT JOIN (corpus_documents c JOIN corpora k ON k.id = c.corpus_id AND k.name = :corpus)
        ON c.hash = d.hash
    WHERE d.hash = ANY(:hashes) ORDER BY d.hash, c.ordinal""")


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A document as answers show it."""

    id: str | None
    """The document's id in the corpus; null if the corpus does not hold it."""
    hash: str
    """Hash of the content, by which jobs and provenance name the document."""
    problem: str
    text: str
    truncated: bool
    """Whether problem or text are longer than shown."""


async def load_documents(connection: AsyncConnection, corpus: str | None, hashes: Sequence[str]) -> dict[str, Shown]:
    """Load the documents with these hashes, by hash."""
    values = {"corpus": corpus, "hashes": [bytes.fromhex(hash_) for hash_ in hashes], "n": LONGEST_TEXT}
    return {
        row.hash.hex(): Shown(
            id=row.external_id, hash=row.hash.hex(), problem=row.problem, text=row.body, truncated=row.truncated
        )
        for row in await connection.execute(OF_CORPUS, values)
    }
