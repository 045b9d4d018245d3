"""Formats and parses ids in the form of OpenAI's: a prefix for the kind, then a UUID without its hyphens."""

import uuid

FILE = "file-"
BATCH = "batch_"


def format_id(prefix: str, number: uuid.UUID | None) -> str | None:
    """Return the id that clients see; None if there is no number."""
    return None if number is None else f"{prefix}{number.hex}"


def parse_id(prefix: str, given: str) -> uuid.UUID:
    """Return the UUID in `given`; for anything that `format_id` did not make, an id that nothing has."""
    digits = given.removeprefix(prefix)
    if not given.startswith(prefix) or len(digits) != 32:
        return uuid.UUID(int=0)
    try:
        return uuid.UUID(hex=digits)
    except ValueError:
        return uuid.UUID(int=0)
