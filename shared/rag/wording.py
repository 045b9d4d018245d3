"""Normalise the words of an answer as in SQuAD's evaluation (Rajpurkar et al. 2016), with rules for numbers.

Lower case, without punctuation and English articles, blanks unified; beyond SQuAD's script in Unicode's form NFKC, with
every Chinese or Japanese character as a word of its own. SQuAD's script turns -5 into 5 and 3.5 into 35. Here a number
keeps its sign, its decimal point and its per cent sign, and mathematical operators stay.
"""

import re
import unicodedata
from collections.abc import Sequence

_IN_NUMBERS = re.compile(r"((?<=\d)[-./:](?=\d)|(?<!\w)(?:-?\.|-)(?=\d)|(?<=\d)%)")
_CHARACTERS = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
_BEFORE_PERCENT = re.compile(r"(?<=\d)\s+(?=%)")
_ARTICLES = frozenset({"a", "an", "the"})
_DROPPED = frozenset({"Sc", "Sk"})


def normalise_words(text: str) -> list[str]:
    """Return the normalised words of `text`, in order.

    Where nothing would be left (`The`, `?`), they are what stands between blanks, articles and punctuation included.
    """
    plain = unicodedata.normalize("NFKC", text).replace("\u2212", "-").casefold()
    found = _CHARACTERS.sub(r" \1 ", _strip_punctuation(_BEFORE_PERCENT.sub("", plain))).split()
    return [word for word in found if word not in _ARTICLES] or plain.split()


def contains_words(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Return whether `whole` contains the words `part` consecutively; an empty `part` is contained in nothing."""
    return bool(part) and join_phrase(part) in join_phrase(whole)


def join_phrase(of: Sequence[str]) -> str:
    """Join words with a blank around each, so that one phrase contains another exactly if its words do."""
    return f" {' '.join(of)} "


def _strip_punctuation(text: str) -> str:
    parts = _IN_NUMBERS.split(text)
    parts[::2] = ["".join(filter(_stays, part)) for part in parts[::2]]
    return "".join(parts)


def _stays(character: str) -> bool:
    category = unicodedata.category(character)
    return not category.startswith("P") and category not in _DROPPED
