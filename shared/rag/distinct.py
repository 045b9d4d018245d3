"""Drop documents with the same content under different hashes: they differ in case, blanks or character forms only."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

from shared.rag.cleaning import normalise_characters
from shared.replies import Document
from shared.samples import Library


def drop_duplicates(documents: Sequence[str], library: Library) -> tuple[str, ...]:
    """Return the first document (hash) of every content, in order.

    By the whole text: seed document 003 compares `hash(text[:100])`, which takes two solutions that begin alike for
    one, and is another number in every process.
    """
    first: dict[bytes, str] = {}
    for document in documents:
        first.setdefault(hash_content(library[document]), document)
    return tuple(first.values())


@lru_cache(maxsize=16384)
def hash_content(document: Document) -> bytes:
    """Return the SHA-256 over problem and text with normalised characters, case and blanks."""
    parts = (document.problem, document.text)
    return hashlib.sha256("\0".join(normalise_characters(part).strip().casefold() for part in parts).encode()).digest()
