"""Cut runs of Chinese, Japanese and Korean, which are written without blanks, into terms.

This uses jieba's search mode, which yields a long word and those inside it; or every character and every pair
of neighbours, which needs no dictionary (as Lucene's CJK analyser does, with single characters in addition).
"""

import logging
import re
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from threading import Lock
from typing import Any, Literal

from shared.extras import not_installed

Cut = Callable[[str], list[str]]
"""Cuts a run of CJK characters into its terms, in order."""

_HAN = re.compile("([\u4e00-\u9fd5]+)")
"""The characters in jieba's dictionary; rarer ones, kana and hangul are not in it."""
_LOADING = Lock()


def split_pairs(run: str) -> list[str]:
    """Return every character, then every pair of neighbours."""
    return [*run, *(run[at : at + 2] for at in range(len(run) - 1))]


def split_words(run: str) -> list[str]:
    """Return the words of jieba's search mode, and pairs of what is not Chinese.

    Raises:
        NotInstalled: jieba is not installed.
    """
    return [
        term
        for part in _HAN.split(run)
        for term in (_get_tokenizer().lcut_for_search if _HAN.match(part) else split_pairs)(part)
    ]


def choose_cut(setting: Literal["auto", "jieba", "bigrams"]) -> tuple[Cut, str | None]:
    """Return how runs are cut, and what of it goes into the recipe; None for pairs, which depend on nothing.

    Raises:
        NotInstalled: jieba is asked for and not installed.
    """
    if setting == "bigrams" or (setting == "auto" and find_spec("jieba") is None):
        return split_pairs, None
    return split_words, f"jieba {_import_jieba().__version__}"


def _get_tokenizer() -> Any:
    with _LOADING:
        return _load_tokenizer()


@cache
def _load_tokenizer() -> Any:
    """Make a tokenizer of our own, and read its dictionary: about a second and 64 MB.

    jieba's `initialize` would take its dictionary from any file called `jieba.cache` in the machine's temporary folder.
    """
    tokenizer = _import_jieba().Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer


@cache
def _import_jieba() -> Any:
    """Import jieba without the log handlers that it installs, and without the warnings about escapes in its strings."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import jieba
    except ImportError:
        needs_it = "`retrieval.sparse.chinese: jieba` needs it, `bigrams` does not"
        raise not_installed("jieba", "zh", needs_it) from None
    log = logging.getLogger("jieba")
    log.setLevel(logging.WARNING)
    log.handlers.clear()
    return jieba
