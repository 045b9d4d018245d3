"""The form of characters in which every embedder reads texts: the one in which the sparse index reads them, too."""

import unicodedata
from typing import Final

NORMAL_FORM: Final = "NFKC"
"""Fullwidth digits and letters are digits and letters, ligatures are letters. Part of every embedder's signature."""


def in_normal_form(text: str) -> str:
    """`text` as it is handed to a tokenizer."""
    return unicodedata.normalize(NORMAL_FORM, text)
