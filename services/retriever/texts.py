"""What of a document is indexed."""

FIELDS = r"problem \n text"
"""Part of every index's signature."""


def indexed_text(problem: str, text: str) -> str:
    """Problem and text on separate lines; a plain passage has no problem."""
    return f"{problem}\n{text}" if problem else text
