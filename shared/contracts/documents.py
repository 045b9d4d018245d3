"""Documents of a corpus, and hits of a search."""

from typing import Any

import msgspec

from shared.contracts import canonical


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A worked solution or any other passage. Documents are content-addressed: equal content is the same document."""

    problem: str = ""
    """Problem that the text answers; empty for a plain passage."""
    text: str
    """Body of the document; for MATH, the worked solution."""

    @property
    def whole(self) -> str:
        """Return the text that is indexed and reranked: problem and text on separate lines; a plain passage has no
        problem."""
        return f"{self.problem}\n{self.text}" if self.problem else self.text

    @property
    def hash(self) -> str:
        """Return the SHA-256, in hex, over the normalised problem and text."""
        return canonical.digest([canonical.normalise(self.problem), canonical.normalise(self.text)]).hex()


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A retrieved document in a reply: its hash, never its text."""

    document: str
    """Hash of the document."""
    rank: int
    """Rank, from 1."""
    score: float
    """Score of the list that the hit comes from (inner product, BM25, or fused); comparable within one list only."""


class CorpusRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A document, and what the corpus says about it."""

    external_id: str | None
    """Id in the upload; None if its lines have none, and the caller numbers them."""
    document: Document
    meta: dict[str, Any]
    """`meta` or `metadata` of the line, with `subject` and `level` as text where they are known."""
