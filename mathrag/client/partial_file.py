"""Write a file beside its place first, so that it is there whole or not at all."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replace_when_whole(file: Path) -> Iterator[Path]:
    """Yield a new path in the folder of `file`; the file written there replaces `file`, or goes after an error."""
    partial = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        yield partial
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)
