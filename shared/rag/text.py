"""Texts: sentences, words, shingles, TF-IDF, and whether something is prose."""

import math
import re
import unicodedata
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from operator import itemgetter

# Compare texts by weighted terms where no model can be called: sentences, strips and documents.
#
# Weight of a term = its count * idf, idf = ln((1 + N) / (1 + n)) + 1 over the N texts that are compared with each
# other, n of which hold the term (the smoothed form: a term that all of them hold still counts, one that none holds is
# finite).

CJK = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_TERM = re.compile(rf"\\[a-z]+|[{CJK}]+|\d+(?:[.,]\d+)*|[^\W\d_{CJK}]+")
_RUN = re.compile(f"[{CJK}]{{2,}}")

Vector = Mapping[str, float]


def extract_terms(text: str) -> list[str]:
    r"""Return words, numbers and commands such as `\frac` in lower case and in order; CJK runs as pairs."""
    found: list[str] = []
    for term in _TERM.findall(text.lower()):
        found += (term[at : at + 2] for at in range(len(term) - 1)) if _RUN.match(term) else [term]
    return found


class TermWeights:
    """The weights of terms, from the texts in which they occur."""

    def __init__(self, texts: Iterable[Sequence[str]]) -> None:
        """Count the texts (each as its terms) that hold a term."""
        counted = [set(found) for found in texts]
        self._texts = len(counted)
        self._holding = Counter(term for found in counted for term in found)

    def idf(self, term: str) -> float:
        """Return the inverse document frequency, which is 1 for a term that every text contains."""
        return math.log((1 + self._texts) / (1 + self._holding[term])) + 1

    def vector(self, found: Sequence[str]) -> Vector:
        """Return count times idf of every term, scaled to length 1; empty for a text without terms."""
        weights = {term: count * self.idf(term) for term, count in Counter(found).items()}
        length = math.sqrt(math.fsum(weight * weight for weight in weights.values()))
        return {term: weight / length for term, weight in weights.items()}


def cosine(left: Vector, right: Vector) -> float:
    """Return the cosine of two vectors of length 1, in [0, 1]; 0 if one is empty."""
    small, large = sorted((left, right), key=len)
    return min(1.0, math.fsum(weight * large[term] for term, weight in small.items() if term in large))


# Split English and Chinese texts with mathematics into sentences, and estimate their tokens.
#
# A sentence ends with . ! or ? before a blank, with 。！ or ？, with an empty line, or before a new item of a list. It
# does not end inside `$...$`, `\(...\)`, `\[...\]`, `\begin...\end`, `[asy]...[/asy]` or braces, in a decimal number,
# nor after an abbreviation, an initial or the number of an item. Where it is not certain, two sentences stay one.

# Pandoc's rule for $: formulas touch their dollars, so that "costs $5, and then $6" holds none; "$ x $" is one as well.
_FORMULA = re.compile(
    r"\$\$(?:\\.|[^$\\])*\$\$|\$(?!\s)(?:\\.|[^$\\])*(?<!\s)\$(?!\d)|\$\s(?:\\.|[^$\\])*\s\$(?!\d)", re.DOTALL
)
_BRACKET = re.compile(r"\\begin\{[^{}]*\}|\\end\{[^{}]*\}|\[/?asy\]|\\[][()]|\\.|[{}]", re.DOTALL)
_OPENING = {"}": "{", r"\]": r"\[", r"\)": r"\(", "[/asy]": "[asy]"}
_END = re.compile(
    r"""
      (?<![.!?])[.!?]++[\"'”’)\]]*+(?:\s*(?:\\\]|\\\)|\$\$?))?(?:\s+|\Z)   # a stop, also a formula's, before a blank
    | [.!?]\s*(?:\\\]|\$\$)                                                # a displayed formula that ends with one
    | (?:[。！？]|……)[。！？…”’」』）】]*\s*
    | \n\s*\n\s*
    | \n\s*(?=(?:[-*•]|\(?\d{1,2}[.)]|Step\s\d+)\s)                        # the next item of a list
    """,
    re.VERBOSE,
)
_NO_END = re.compile(
    r"""(?:
      \b(?i:e\.g|i\.e|cf|vs|viz|resp|approx|figs?|eqs?|eqn|sec|ch|nos?|vol|pp|dr|mrs?|ms|prof|st|jr|al|thm)
    | \b[A-Z]                            # an initial
    | (?:\A|\n)[ \t]*\(?\d{1,2}          # the number of an item
    )\.\Z""",
    re.VERBOSE,
)
_LOOK_BACK = 16
_WORD = re.compile(rf"[^\W\d_{CJK}]+|\s+|.", re.DOTALL)
LETTERS = 4
"""Letters of a word that are counted as one token."""


def split_sentences(text: str) -> list[str]:
    """Return the sentences in order, each with the blanks after it: joined they are `text`."""
    spans, cuts = find_formulas(text), [0]
    for match in _END.finditer(text):
        if match[0][0] == "." and _NO_END.search(text[max(0, match.start() - _LOOK_BACK) : match.start() + 1]):
            continue
        before = bisect_left(spans, match.end(), key=itemgetter(0)) - 1
        if before < 0 or match.end() >= spans[before][1]:
            cuts.append(match.end())
    return [text[start:end] for start, end in pairwise([*cuts, len(text)]) if start < end]


def find_formulas(text: str) -> list[tuple[int, int]]:
    """Return where formulas and unsplittable braces lie, as (start, end), in order and without overlap."""
    found = sorted([match.span() for match in _FORMULA.finditer(text)] + list(_brackets(text)))
    apart: list[tuple[int, int]] = []
    for start, end in found:
        if apart and start < apart[-1][1]:
            apart[-1] = (apart[-1][0], max(end, apart[-1][1]))
        else:
            apart.append((start, end))
    return apart


def estimate_tokens(text: str) -> int:
    """Estimate a model's tokens, rather too many than too few.

    One for every 4 letters begun of a word, one for every digit, sign and CJK character, none for blanks. Two texts
    written behind each other never have more than both.
    """
    return sum(-(-len(word) // LETTERS) for word in _WORD.findall(text) if not word.isspace())


def _brackets(text: str) -> Iterator[tuple[int, int]]:
    """Yield balanced pairs of each kind; a bracket without its partner is an ordinary character."""
    opened: defaultdict[str, list[int]] = defaultdict(list)
    for match in _BRACKET.finditer(text):
        mark = match.group()
        if mark in _OPENING.values() or mark.startswith(r"\begin"):
            opened[mark].append(match.start())
        elif starts := opened[_OPENING.get(mark, mark.replace(r"\end", r"\begin"))]:
            yield starts.pop(), match.end()


SHINGLE = 3
ALIKE = 0.8
"""Jaccard index from which two texts have almost the same words."""

Shingles = frozenset[tuple[str, ...]]


def make_shingles(found: Sequence[str]) -> Shingles:
    """Return every three consecutive terms; a shorter text is one shingle, one without terms has none."""
    if len(found) <= SHINGLE:
        return frozenset({tuple(found)} if found else ())
    return frozenset(zip(*(found[start:] for start in range(SHINGLE)), strict=False))


def are_of_like_size(left: int, right: int) -> bool:
    """Return whether sets of these sizes can share enough; most pairs of texts are settled by that."""
    return min(left, right) >= ALIKE * max(left, right, 1)


def are_alike(left: Shingles, right: Shingles) -> bool:
    """Return whether both share enough shingles; two texts without terms do not."""
    if not are_of_like_size(len(left), len(right)):
        return False
    shared = len(left & right)
    return shared >= ALIKE * (len(left) + len(right) - shared)


# Separate language from mathematics in a text; mathematics must not be changed.
#
# Mathematics means formulas in sentences (between dollars or brackets, environments, braces), a
# command such as `\sqrt` with what follows it unspaced, and every unspaced piece that has a digit, an operator or an
# underscore in it: `x^2+3`, `f(x)=2`, `a_n`.

CHINESE = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_PIECE = re.compile(rf"[^\s{CHINESE}，。？！；：、,;!?]+")
_MATHEMATICAL = re.compile(r"[\\\d=+*^_<>|×÷≤≥≠±√∑∫∞²³]|\w\(|(?<![A-Za-z])[-/]|[-/](?![A-Za-z])")


def find_mathematics(text: str) -> list[tuple[int, int]]:
    """Return where mathematics lies in `text`, as (start, end), in order and without overlap."""
    found: list[tuple[int, int]] = []
    pieces = [match.span() for match in _PIECE.finditer(text) if _MATHEMATICAL.search(match[0])]
    for start, end in sorted([*find_formulas(text), *pieces]):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


def list_prose(text: str) -> Iterator[str]:
    """Return the parts of `text` between its formulas, in order."""
    at = 0
    for start, end in find_mathematics(text):
        yield text[at:start]
        at = end
    yield text[at:]


def change_prose(text: str, change: Callable[[str], str]) -> str:
    """Apply `change` to each part of the prose of `text`; mathematics stays unchanged."""
    return change_outside(text, find_mathematics(text), change)


def change_outside(text: str, spans: Sequence[tuple[int, int]], change: Callable[[str], str]) -> str:
    """Apply `change` to each part outside of `spans`, which are in order and do not overlap."""
    changed, at = [], 0
    for start, end in spans:
        changed += [change(text[at:start]), text[start:end]]
        at = end
    return "".join([*changed, change(text[at:])])


# Normalise the words of an answer as in SQuAD's evaluation (Rajpurkar et al. 2016), with rules for numbers.
#
# Lower case, without punctuation and English articles, blanks unified; beyond SQuAD's script in Unicode's form NFKC,
# with every Chinese or Japanese character as its own word. SQuAD's script turns -5 into 5 and 3.5 into 35. Here a
# number keeps its sign, its decimal point and its per cent sign, and mathematical operators stay.

_IN_NUMBERS = re.compile(r"((?<=\d)[-./:](?=\d)|(?<!\w)(?:-?\.|-)(?=\d)|(?<=\d)%)")
_CHARACTERS = re.compile("([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff])")
_BEFORE_PERCENT = re.compile(r"(?<=\d)\s+(?=%)")
_ARTICLES = frozenset({"a", "an", "the"})


def normalise_words(text: str) -> list[str]:
    """Return the normalised words of `text`, in order.

    If none would be left (`The`, `?`), they are the parts between spaces, including articles and punctuation.
    """
    plain = unicodedata.normalize("NFKC", text).replace("\u2212", "-").casefold()
    parts = _IN_NUMBERS.split(_BEFORE_PERCENT.sub("", plain))
    for at in range(0, len(parts), 2):
        parts[at] = "".join(each for each in parts[at] if not unicodedata.category(each).startswith(("P", "Sc", "Sk")))
    found = _CHARACTERS.sub(r" \1 ", "".join(parts)).split()
    return [word for word in found if word not in _ARTICLES] or plain.split()


def contains_words(part: Sequence[str], whole: Sequence[str]) -> bool:
    """Return whether `whole` contains the words `part` consecutively; an empty `part` is contained in nothing."""
    return bool(part) and join_phrase(part) in join_phrase(whole)


def join_phrase(of: Sequence[str]) -> str:
    """Join words with a blank around each, so that one phrase contains another exactly if its words do."""
    return f" {' '.join(of)} "
