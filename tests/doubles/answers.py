"""What doubles of models answer; it depends on the prompt alone. Imports next to nothing: it is part of programs."""

import zlib

RATING = "Rating:"
"""How a judge's prompt ends."""


def by_rule(prompt: str) -> str:
    """A rating where the prompt asks for one, a boxed number elsewhere."""
    number = zlib.crc32(prompt.encode())
    return f"[[{number % 5 + 1}]]" if prompt.endswith(RATING) else f"The answer is \\boxed{{{number % 10}}}."
