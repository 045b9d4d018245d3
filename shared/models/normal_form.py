"""The Unicode normal form in which embedders and the sparse index read texts."""

import unicodedata
from typing import Final

NORMAL_FORM: Final = "NFKC"
"""It maps fullwidth digits and letters and ligatures to ordinary ones. Part of every embedder's signature."""


def normalise(text: str) -> str:
    """Return `text` in the form in which it is passed to a tokenizer."""
    return unicodedata.normalize(NORMAL_FORM, text)
