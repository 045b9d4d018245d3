r"""Cut mathematical text into tokens for BM25: `\frac`, `x^2`, numbers and words stay whole; CJK runs are cut
(`chinese`)."""

import re
import unicodedata

from services.retriever import chinese

VERSION = 1
"""Version in every sparse index's signature: increase it with any change below."""

_CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_TOKEN = re.compile(
    rf"""
      \\[a-z]+                            # \frac, \boxed
    | [{_CJK}]+                           # a run of Chinese, Japanese or Korean
    | [^\W\d_{_CJK}][\^_]\{{?\w+\}}?      # x^2, a_n, x^{{10}}: one letter with its exponent or index
    | \d+(?:[.,]\d+)*                     # 12, 3.14, 40,000
    | [^\W\d_{_CJK}]+(?:'[a-z]+)?         # words, also accented
    """,
    re.VERBOSE,
)
_IS_CJK = re.compile(f"[{_CJK}]")
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,)(?=\d{3}(?!\d))|(?<=\d),\\!(?=\d{3}(?!\d))")
_DROPPED = str.maketrans("", "", "{}")


def tokenise(text: str, cut: chinese.Cut = chinese.split_pairs) -> list[str]:
    r"""Return the tokens of `text` in order, lower-cased, NFKC; `40{,}000`, `40,000` and `40000` are one token.

    A run of CJK characters yields the terms of `cut`; no token holds a blank.
    """
    normal = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text).lower())
    tokens: list[str] = []
    for match in _TOKEN.finditer(normal):
        found = match.group()
        if _IS_CJK.match(found):
            tokens += cut(found)
        else:
            tokens += _split_power(found)
    return tokens


def _split_power(token: str) -> list[str]:
    """Yield `x^{10}` as `x^10` and also as `x` and `10`, so that it matches the bare variable."""
    if "^" not in token and "_" not in token:
        return [token]
    power = token.translate(_DROPPED)
    return [power, *re.split(r"[\^_]", power)]
