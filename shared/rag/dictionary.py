"""Look up synonyms, correct misspelt words and recognise generic words, from `terms.toml` and a job's own entries."""

import re
import tomllib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from itertools import takewhile
from typing import NamedTuple

import msgspec

from shared.rag.language import detect_language
from shared.rag.prose import CJK, change_prose, list_prose

MOST_SYNONYMS = 8
"""More would drown the question in them."""
CORRECTED_LETTERS = 6
"""Letters of the shortest word that is corrected: shorter ones have too many neighbours that are right."""

_HAN = re.compile(f"[{CJK}]")
_LATIN = re.compile(r"[a-z]+")
_WORD = re.compile(r"(?<![\w'’-])[a-z]+(?![\w'’-])")
"""Words in lower case: one with a capital may be a name."""
_ENDINGS = ("s", "es", "d", "ed", "ing", "ly")


class TermEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One term with all its names by language, the usual name first."""

    en: tuple[str, ...] = ()
    zh: tuple[str, ...] = ()


class TermSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of `terms.toml`."""

    terms: tuple[TermEntry, ...]
    right: tuple[str, ...]
    generic: tuple[str, ...]


class CorrectedQuestion(NamedTuple):
    """A question with its misspelt terms corrected."""

    question: str
    corrections: dict[str, str]


class Dictionary:
    """The terms of one job. Names are compared case-insensitively."""

    def __init__(self, source: TermSource) -> None:
        """Index `source` by name and by word."""
        self._entries: dict[str, list[TermEntry]] = {}
        for entry in source.terms:
            for name in (*entry.en, *entry.zh):
                self._entries.setdefault(name.lower(), []).append(entry)
        self._names = _compile_any_of(self._entries)
        self._words = {word for name in self._entries for word in _LATIN.findall(name)}
        self._right = self._words | set(source.right)

    def synonyms(self, question: str) -> tuple[str, ...]:
        """Return other names of the terms in `question`, in its language; for a Chinese question in English, too.

        English ones, because most collections of mathematics are English. Names that stand in the question already
        are left out, and so are those after the first 8.
        """
        chinese = detect_language(question) == "zh"
        lower_question = question.lower()
        names = [match["name"] for part in list_prose(lower_question) for match in self._names.finditer(part)]
        entries = [entry for name in dict.fromkeys(names) for entry in self._entries[name]]
        others = [name for entry in entries for name in ((*entry.zh, *entry.en) if chinese else entry.en)]
        return tuple(dict.fromkeys(name for name in others if name.lower() not in lower_question))[:MOST_SYNONYMS]

    def correct(self, question: str) -> CorrectedQuestion:
        """Correct words that are one edit away from exactly one word of a term.

        One letter more, less or other, or two neighbours swapped. Formulas, short words, words with a capital and
        those that are known to be right, inflected or not, stay. So does Chinese, where one character off is mostly
        another term: 锐角三角形 is no misspelt 直角三角形.
        """
        words = {word for part in list_prose(question) for word in _WORD.findall(part)}
        meant = {word: self._find_intended_word(word) for word in sorted(words)}
        corrections = {word: term for word, term in meant.items() if term is not None}

        def correct(part: str) -> str:
            return _WORD.sub(lambda match: corrections.get(match.group(), match.group()), part)

        return CorrectedQuestion(change_prose(question, correct) if corrections else question, corrections)

    def _find_intended_word(self, word: str) -> str | None:
        """Return the one word of a term that `word` misspells, if there is exactly one."""
        stems = {word, *(word.removesuffix(ending) for ending in _ENDINGS)}
        if len(word) < CORRECTED_LETTERS or stems & self._right:
            return None
        near = [known for known in self._words if abs(len(word) - len(known)) <= 1 and is_one_edit_apart(word, known)]
        return near[0] if len(near) == 1 else None


def make_dictionary(own: Mapping[str, tuple[str, ...]]) -> Dictionary:
    """Combine the packaged terms with a job's own: a term and its synonyms, in either language."""
    return _build_dictionary(tuple(sorted(own.items())))


def is_generic(word: str) -> bool:
    """Return whether a lower-case word can occur in any question and so says nothing about this one."""
    return word in _load_generic_words()


@cache
def compile_generic_chinese() -> re.Pattern[str]:
    """Compile a pattern for the Chinese generic words, which no blanks separate."""
    return re.compile("|".join(sorted(filter(_HAN.search, _load_generic_words()), key=lambda word: (-len(word), word))))


def is_one_edit_apart(left: str, right: str) -> bool:
    """Return whether one letter was added, lost or changed, or two neighbours were swapped (Damerau 1964)."""
    start = _count_shared_letters(left, right)
    left, right = left[start:], right[start:]
    end = _count_shared_letters(left[::-1], right[::-1])
    left, right = left[: len(left) - end], right[: len(right) - end]
    swapped = len(left) == 2 and left == right[::-1]
    return swapped or (len(left), len(right)) in {(0, 1), (1, 0), (1, 1)}


def _count_shared_letters(left: str, right: str) -> int:
    """Return the number of letters that both begin with."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(left, right, strict=False)))


@lru_cache(maxsize=64)
def _build_dictionary(own: tuple[tuple[str, tuple[str, ...]], ...]) -> Dictionary:
    source = _load_source()
    added = tuple(_make_entry((term, *synonyms)) for term, synonyms in own)
    return Dictionary(msgspec.structs.replace(source, terms=source.terms + added))


def _make_entry(names: tuple[str, ...]) -> TermEntry:
    chinese = tuple(name for name in names if _HAN.search(name))
    return TermEntry(en=tuple(name for name in names if name not in chinese), zh=chinese)


@cache
def _load_source() -> TermSource:
    return msgspec.convert(
        tomllib.loads(resources.files(__package__).joinpath("terms.toml").read_text("utf-8")), TermSource
    )


@cache
def _load_generic_words() -> frozenset[str]:
    return frozenset(_load_source().generic)


def _compile_any_of(names: Mapping[str, object]) -> re.Pattern[str]:
    """Compile a pattern for any of the names, the longest first; Latin ones as whole words, also in the plural."""
    longest = sorted(names, key=lambda name: (-len(name), name))
    latin = "|".join(re.escape(name) for name in longest if not _HAN.search(name))
    chinese = "|".join(re.escape(name) for name in longest if _HAN.search(name))
    return re.compile(rf"(?P<name>(?<![a-z])(?:{latin})(?=(?:e?s)?(?![a-z]))|(?:{chinese}))")
