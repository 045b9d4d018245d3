"""Compute the answers of model doubles from the prompt alone. It imports little, because programs include it."""

import zlib
from typing import Any

RATING = "Rating:"
"""Ending of a judge's prompt."""


def by_rule(prompt: str) -> str:
    """Answer with a rating if the prompt asks for one, else with a boxed number."""
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
