"""Choose the text of a document that is indexed."""

from shared.replies import Document

FIELDS = r"problem \n text"
"""The fields that are indexed, as every index's signature has them."""


def make_indexed_text(problem: str, text: str) -> str:
    """Join problem and text on separate lines; a plain passage has no problem."""
    return Document(problem=problem, text=text).whole
