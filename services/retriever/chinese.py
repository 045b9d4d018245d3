"""How runs of Chinese, Japanese and Korean, which know no blanks, are cut into terms.

By jieba's search mode, which yields a long word and the shorter ones inside it; or into every character and every pair
of neighbours, which needs no dictionary (the way of Lucene's CJK analyser, and single characters beside it).
"""

import logging
import re
import warnings
from collections.abc import Callable
from functools import cache
from importlib.util import find_spec
from threading import Lock
from typing import Any, Literal

from shared.errors import Unavailable

Cut = Callable[[str], list[str]]
"""A run of CJK characters to its terms, in order."""

_HAN = re.compile("([\u4e00-\u9fd5]+)")
"""What jieba's dictionary knows; rarer characters, kana and hangul do not stand in it."""
_LOADING = Lock()


def pairs(run: str) -> list[str]:
    """Every character, then every pair of neighbours."""
    return [*run, *(run[at : at + 2] for at in range(len(run) - 1))]


def words(run: str) -> list[str]:
    """The words of jieba's search mode; what is not Chinese in pairs.

    Raises:
        Unavailable: jieba is not installed.
    """
    return [
        term for part in _HAN.split(run) for term in (_jieba().lcut_for_search if _HAN.match(part) else pairs)(part)
    ]


def chosen(setting: Literal["auto", "jieba", "bigrams"]) -> tuple[Cut, str | None]:
    """How runs are cut, and what must stand in a recipe of it; None: pairs, which depend on nothing.

    Raises:
        Unavailable: jieba is asked for and not installed.
    """
    if setting == "bigrams" or (setting == "auto" and find_spec("jieba") is None):
        return pairs, None
    return words, f"jieba {_library().__version__}"


def _jieba() -> Any:
    with _LOADING:
        return _loaded()


@cache
def _loaded() -> Any:
    """A tokenizer of our own, with its dictionary read.

    Not by `initialize`, which takes whatever lies as `jieba.cache` in the machine's temporary folder for its
    dictionary. It takes about a second and 64 MB.
    """
    tokenizer = _library().Tokenizer()
    tokenizer.FREQ, tokenizer.total = tokenizer.gen_pfdict(tokenizer.get_dict_file())
    tokenizer.initialized = True
    return tokenizer


@cache
def _library() -> Any:
    """The package, which installs log handlers and has escapes in its strings that newer Pythons warn of."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import jieba
    except ImportError:
        hint = "install the extra: `pip install mathrag-gate[zh]`; or set `retrieval.sparse.chinese: bigrams`"
        raise Unavailable("`retrieval.sparse.chinese` is `jieba`, and jieba is not installed", hint=hint) from None
    log = logging.getLogger("jieba")
    log.setLevel(logging.WARNING)
    log.handlers.clear()
    return jieba
