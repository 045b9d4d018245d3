"""What of a document is indexed."""

from shared.contracts.documents import Document

FIELDS = r"problem \n text"
"""Part of every index's signature."""


def indexed_text(problem: str, text: str) -> str:
    """Problem and text on separate lines; a plain passage has no problem."""
    return Document(problem=problem, text=text).whole
