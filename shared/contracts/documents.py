"""What is searched and found: documents and hits."""

from typing import Any

import msgspec

from shared.contracts import canonical


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A worked solution (or any passage), content-addressed: the same content is the same document."""

    problem: str = ""
    """What the text answers; empty for a plain passage."""
    text: str
    """The body: for MATH the worked solution."""

    @property
    def whole(self) -> str:
        """As it is indexed and reranked: problem and text on separate lines; a plain passage has no problem."""
        return f"{self.problem}\n{self.text}" if self.problem else self.text

    @property
    def hash(self) -> str:
        """SHA-256 in hex over the normalised problem and text."""
        return canonical.digest([canonical.normalise(self.problem), canonical.normalise(self.text)]).hex()


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """One retrieved document as the retriever stores it: by hash, never with its text."""

    document: str
    """The document's hash."""
    rank: int
    """From 1."""
    score: float
    """Raw score of the list it comes from (inner product, BM25, or fused); comparable within one list only."""


class CorpusRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A document and what the corpus says about it."""

    external_id: str | None
    """The id in the upload; None where lines carry none, and the caller numbers them."""
    document: Document
    meta: dict[str, Any]
    """`meta` or `metadata` of the line, with `subject` and `level` as text where known."""
