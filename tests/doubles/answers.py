"""What doubles of models answer; it depends on the prompt alone. Imports next to nothing: it is part of programs."""

import zlib
from typing import Any

RATING = "Rating:"
"""How a judge's prompt ends."""


def by_rule(prompt: str) -> str:
    """A rating where the prompt asks for one, a boxed number elsewhere."""
    number = zlib.crc32(prompt.encode())
    return f"[[{number % 5 + 1}]]" if prompt.endswith(RATING) else f"The answer is \\boxed{{{number % 10}}}."


def by_word(text: str, alternatives: int) -> list[dict[str, Any]]:
    """Log-probabilities in the form of OpenAI: each word is a token of probability 1/2."""
    others = [{"token": f"other{n}", "logprob": -2.0 - n} for n in range(alternatives - 1)]
    words = [word if n == 0 else f" {word}" for n, word in enumerate(text.split(" "))]
    return [
        {"token": word, "logprob": -0.6931471805599453, "bytes": list(word.encode()),
         "top_logprobs": [{"token": word, "logprob": -0.6931471805599453}, *others][:alternatives]}
        for word in words
    ]  # fmt: skip
