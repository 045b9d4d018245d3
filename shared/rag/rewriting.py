"""Rewrite questions for a search: wordings, parts, hypothetical documents, intents and terms."""

import re
import tomllib
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from importlib import resources
from itertools import islice, takewhile
from typing import Literal, NamedTuple

import msgspec

from mathrag.reasoning import remove_reasoning
from shared.calls import MAX_QUESTION, Decoding, Write
from shared.params import EnhanceParams, FusionParams, HydeParams
from shared.rag.prompts import detect_language, localise
from shared.rag.text import (
    CHINESE,
    change_outside,
    change_prose,
    extract_terms,
    find_formulas,
    find_mathematics,
    list_prose,
)
from shared.replies import Failure, FailureKind, Generated
from shared.samples import Decision

# Look up synonyms, correct misspelt words and recognise generic words, from `terms.toml` and a job's own entries.

MOST_SYNONYMS = 8
"""More would drown the question in them."""
CORRECTED_LETTERS = 6
"""Letters of the shortest word that is corrected: shorter ones have too many neighbours that are right."""

_HAN = re.compile(f"[{CHINESE}]")
_LATIN = re.compile(r"[a-z]+")
_ENGLISH_WORD = re.compile(r"(?<![\w'’-])[a-z]+(?![\w'’-])")
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
        # Any of the names, the longest first; Latin ones as whole words, also in the plural.
        longest = sorted(self._entries, key=lambda name: (-len(name), name))
        latin = "|".join(re.escape(name) for name in longest if not _HAN.search(name))
        chinese = "|".join(re.escape(name) for name in longest if _HAN.search(name))
        self._names = re.compile(rf"(?P<name>(?<![a-z])(?:{latin})(?=(?:e?s)?(?![a-z]))|(?:{chinese}))")
        self._words = {word for name in self._entries for word in _LATIN.findall(name)}
        self._right = self._words | set(source.right)

    def synonyms(self, question: str) -> tuple[str, ...]:
        """Return other names of the terms in `question`, in its language; for a Chinese question in English as well.

        English ones, because most collections of mathematics are English. Names that already occur in the question
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
        another term: 锐角三角形 is not a misspelt 直角三角形.
        """
        words = {word for part in list_prose(question) for word in _ENGLISH_WORD.findall(part)}
        meant = {word: self._find_intended_word(word) for word in sorted(words)}
        corrections = {word: term for word, term in meant.items() if term is not None}

        def correct(part: str) -> str:
            return _ENGLISH_WORD.sub(lambda match: corrections.get(match.group(), match.group()), part)

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


@lru_cache(maxsize=64)
def _build_dictionary(own: tuple[tuple[str, tuple[str, ...]], ...]) -> Dictionary:
    source, added = _load_source(), []
    for term, synonyms in own:
        chinese = tuple(name for name in (term, *synonyms) if _HAN.search(name))
        added.append(TermEntry(en=tuple(name for name in (term, *synonyms) if name not in chinese), zh=chinese))
    return Dictionary(msgspec.structs.replace(source, terms=(*source.terms, *added)))


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


@cache
def _load_source() -> TermSource:
    text = resources.files(__package__).joinpath("terms.toml").read_text("utf-8")
    return msgspec.convert(tomllib.loads(text), TermSource)


@cache
def _load_generic_words() -> frozenset[str]:
    return frozenset(_load_source().generic)


# Use the judge model's texts about a question: another wording, or simpler questions.
#
# A reply is read without reasoning, introductions, labels, numbers, quotes and Markdown. A line of it is taken if it
# can be searched with: it is new, not far longer than the question, no refusal, and says something. Anything else
# leaves the original question (seed document 001).
#
# Whether a line is about the question is not asked. Words cannot tell: "pi r squared" is about the area of a circle,
# and a wording in another language, good for a corpus in that language, shares no word with the question. An embedder
# could, but only jobs of `embedding` are pinned to one, and no threshold of a cosine holds for every embedder. A wrong
# wording costs little, since the documents of the question itself stay in the list; only the search by a rule, and that
# of another corpus by keywords, have the wording alone. To refuse a right one costs the method.

LONGEST = 2
"""Maximum length of a query as a multiple of the question's; `SHORT` characters are always allowed."""
SHORT = 200
MOST_LINES = 100
"""Lines of a reply that are looked at."""
MOST_DECORATIONS = 4
"""Maximum number of consecutive numbers, labels and ratings, as in `1. **Query:**`."""

_QUOTES = "\"'`*_“”‘’「」『』"
_ITEM = (
    r"(?P<item>[-–—*•·●▪]\s+|\(?\d{1,2}[).、:：]\s*(?!\d)|[（(]\d{1,2}[）)]\s*|[①-⑳]\s*|[a-e]\)\s+"
    r"|[一二三四五六七八九十]{1,2}、\s*)"
)
_AGREEMENT = (
    r"(?:sure(?: thing)?|certainly|of course|absolutely|okay|ok|alright|great|yes|no problem"
    r"|[当當]然(?:可以)?|好的?|[没沒]问题|[没沒]問題|可以|是的)(?:\s*[!,.:;，。！：、~]+\s*|\Z)"
)
_NOUN = (
    r"(?:quer(?:y|ies)|questions?|keywords?|search|rewrit\w{1,5}|reword\w{1,5}|rephras\w{1,5}|versions?|ones?\b|options?"
    r"|solutions?|passages?|answer|查[询詢]|[问問][题題]|[关關][键鍵][词詞]|[改重][写寫]|[检檢]索|解答|段落)"
)
_NAMING = rf"[^:：\n]{{0,60}}?{_NOUN}[^:：\n]{{0,60}}?"
_COLON = r"[*_]*\s*[:：]"
_OPENING = (
    rf"(?:(?:here|below)(?:['’]s| is| are)|the following (?:is|are)|(?:以下|下面)[是为為]|如下){_NAMING}"
    rf"|(?:this is|these are|[这這]是){_NAMING}(?={_COLON})"
)
_LABEL = (
    r"(?:(?:(?:the|my|an?|your|better|improved|optimi[sz]ed|revised|new|final|alternative|suggested|possible|search|sub"
    r"|simpler|re-?(?:written|worded|phrased|formulated))[ -]?){0,6}"
    r"(?:quer(?:y|ies)|questions?|keywords?|rewriting|version|solution|passage|answer|step|part)"
    r"|(?:[改重][写寫]|[优優]化|更好|新|最[终終]|[检檢]索|搜索|[后後]|的|子){0,6}"
    r"(?:[改重][写寫][后後]?|查[询詢]|[问問][题題]|[关關]?[键鍵]?[词詞字]|解答|段落)(?:[语語]句)?)"
    r"(?: *(?P<number>\d{1,2}))?(?: is| are| would be|[为為是]|如下)?"
)
_DECORATION = re.compile(
    rf"{_ITEM}|#{{1,6}}\s+|>\s*|\[\[\d*\]\]\s*|{_AGREEMENT}|(?:{_OPENING}|{_LABEL})(?:{_COLON}|[*_]*[.。!！]?\Z)",
    re.IGNORECASE,
)
_FENCE = re.compile(r"`{3,}\s*\w*")
_TALK = re.compile(
    r"I hope|hope (?:this|that)|let me know|feel free|I(?:['’]d| would) be (?:happy|glad)"
    r"|I(?:['’]ve| have)? (?:rewrote|rewritten|reworded|rephrased|split)\b"
    r"|希望(?:[这這对對能]|以上)|如有(?:需要|疑[问問]|其他|任何)|如果[您你](?:[还還]|需要)",
    re.IGNORECASE,
)
_MODEL = r"(?:AI\b|artificial intelligence|(?:large )?language model|text-based|chatbot|virtual assistant)"
_MODEL_ZH = r"(?:AI|人工智[能慧]|(?:大型?)?[语語]言模型|聊天机器人)"
_REFUSAL = re.compile(
    r"(?:(?:unfortunately|but|well)[,. ]+)*(?:"
    r"I(?:'m| am) (?:(?:very|so|truly|really) )?(?:sorry|afraid|unable|not (?:able|sure|capable))\b"
    rf"|I(?:'m| am) (?:(?:just|only) )?an? {_MODEL}|as an? (?:{_MODEL}|(?:\w{{1,20}} )?assistant\b)"
    r"|I (?:cannot|can ?not|can't|could not|couldn't|won't|will not|must decline|apologi[sz]e)\b"
    r"|I do(?:n't| not) (?:know|understand|have (?:enough|access|the|any))\b"
    r"|(?:this|the|your) (?:question|request|query) (?:cannot|can't|can not|is (?:unclear|incomplete|ambiguous|not))\b"
    r"|it(?:'s| is) (?:impossible|not possible) to\b|(?:my )?apologies\b|sorry\b|unable to\b"
    r"|(?:cannot|can't) (?:answer|help|rewrite)\b|(?:none|n/?a|null|nothing|unknown|[无無]|[没沒]有)\W*\Z"
    r"|(?:很|非常|真的)?(?:抱歉|[对對]不起|不好意思)|[无無]法(?:回答|改[写寫])"
    rf"|我[们們]?(?:[无無]法|不能|不[会會]|不知道|[没沒]有?[办辦]法|只?是(?:一?[个個名款])?{_MODEL_ZH})"
    rf"|作[为為](?:一[个個名款]|{_MODEL_ZH}))",
    re.IGNORECASE,
)


class WrittenQueries(NamedTuple):
    """Queries from a reply; none if the original question is used."""

    queries: tuple[str, ...]
    decision: Decision


def rewrite(question: str, params: EnhanceParams, documents: tuple[str, ...] = ()) -> Write:
    """Make the call for another wording; the model is shown `documents`, named by their hashes, if there are any."""
    template = localise("rewrite-shown", question) if documents else localise("rewrite", question)
    return Write(template=template, decoding=params.decoding, slots={"question": question}, documents=documents)


def rewrite_again(question: str, decoding: Decoding, documents: tuple[str, ...]) -> Write:
    """Make the call for another wording that shows documents to the model."""
    template, slots = localise("rewrite-again", question), {"question": question}
    return Write(template=template, decoding=decoding, slots=slots, documents=documents)


def decompose(question: str, params: EnhanceParams) -> Write:
    """Make the call for at most `params.subqueries` simpler questions."""
    slots = {"question": question, "subqueries": str(params.subqueries)}
    return Write(template=localise("decompose", question), decoding=params.decoding, slots=slots)


def ask_for_keywords(question: str, params: EnhanceParams) -> Write:
    """Make the call for the keywords to search another corpus with."""
    return Write(template=localise("keywords", question), decoding=params.decoding, slots={"question": question})


def read_rewrite(question: str, reply: Generated | Failure) -> WrittenQueries:
    """Return the first line of the reply that says something, bare."""
    return _make_queries("rewrite", question, reply, most=1)


def read_subqueries(question: str, reply: Generated | Failure, params: EnhanceParams) -> WrittenQueries:
    """Return the first `params.subqueries` distinct lines that can be searched with, without numbers.

    If some lines are items of a list, the others are talk around it.
    """
    return _make_queries("decompose", question, reply, most=params.subqueries, several=True)


def read_keywords(question: str, reply: Generated | Failure) -> WrittenQueries:
    """Return the keywords: the first line of the reply that says something."""
    return _make_queries("keywords", question, reply, most=1)


def says_something(question: str, text: str) -> bool:
    """Return whether a search for `text` is one: it holds a word that is not generic, or a number of the question."""
    text_terms = set(extract_terms(text))
    named = any(term[0].isalpha() and not is_generic(term) for term in text_terms)
    return named or not text_terms.isdisjoint(term for term in extract_terms(question) if not is_generic(term))


def is_refusal(text: str) -> bool:
    """Return whether a text begins with a refusal, in English or Chinese: "I cannot ...", "As an AI ...", 我无法 ..."""
    _, bare = _strip_decoration(text.partition("\n")[0])
    return _REFUSAL.match(bare.replace("’", "'")) is not None


def remove_introduction(text: str) -> str:
    """Return `text` without a first line that only introduces the rest: "Sure! Here is a solution:"."""
    first, _, rest = text.strip().partition("\n")
    return text.strip() if _strip_decoration(first)[1] else rest.strip()


def _make_queries(
    stage: str, question: str, reply: Generated | Failure, *, most: int, several: bool = False
) -> WrittenQueries:
    if isinstance(reply, Failure):
        return _keep_original(stage, reply.kind)
    lines = list(islice(_read_lines(reply), MOST_LINES))
    items = [bare for is_item, bare in lines if is_item]
    read = (items or [bare for _, bare in lines]) if several else [bare for _, bare in lines[:1]]
    first: dict[str, str] = {}
    for line in read:
        first.setdefault(_normalise(line), line)
    first.pop(_normalise(question), None)
    new = list(first.values())
    if read and not new:
        return WrittenQueries((), Decision(stage=stage, action="unchanged"))
    longest = max(SHORT, LONGEST * len(question))
    usable = (line for line in new if len(line) <= longest and says_something(question, line))
    queries = tuple(islice(usable, most))
    if queries:
        return WrittenQueries(queries, Decision(stage=stage, action="written", detail={"queries": list(queries)}))
    return _keep_original(stage, FailureKind.TRUNCATED if reply.truncated and not read else FailureKind.UNPARSED)


def _keep_original(stage: str, kind: FailureKind) -> WrittenQueries:
    return WrittenQueries((), Decision(stage=stage, action="original", fallback=kind.value))


def _read_lines(reply: Generated) -> Iterator[tuple[bool, str]]:
    """Return (whether it is an item of a list, the bare text) of each line, up to a refusal.

    A line cut off by the token limit is left out, and so are talk and lines that end in a colon: they introduce others.
    """
    whole = reply.text.rpartition("\n")[0] if reply.truncated else reply.text
    for line in remove_reasoning(whole).splitlines():
        is_item, bare = _strip_decoration(line)
        if is_refusal(bare):
            return
        if bare and not bare.endswith((":", "：")) and not _TALK.match(bare):
            yield is_item, bare


def _strip_decoration(line: str) -> tuple[bool, str]:
    """Return whether the line is an item of a list, and the line without numbers, labels, quotes and Markdown."""
    is_item, bare = False, line.strip()
    if _FENCE.fullmatch(bare):
        return False, ""
    for _ in range(MOST_DECORATIONS):
        if found := _DECORATION.match(bare):
            is_item = is_item or bool(found["item"] or found["number"])
            bare = bare[found.end() :].strip()
        bare = bare.strip(_QUOTES).strip()
    return is_item, bare


def _normalise(text: str) -> str:
    """Normalise a text so that case, blanks and marks at its end do not count."""
    return " ".join(text.lower().split()).rstrip(" .?!。？！")


# Write hypothetical documents (HyDE, Gao et al. 2023): they are closer to real documents than the question is.
#
# They serve the search only: invented texts never become context.

END = "\n\n\n"
"""Where the authors' code stops; here the text is cut instead, which leaves the same."""


class Hypotheses(NamedTuple):
    """The usable hypothetical documents."""

    texts: tuple[str, ...]
    """The texts in the order in which they were drawn."""
    failures: tuple[FailureKind, ...]
    """Kinds of failure of the documents that were not written."""

    def decision(self) -> Decision:
        """Describe their number; without them, the search uses the question's own vector."""
        failed = [kind.value for kind in self.failures]
        return Decision(
            stage="hyde",
            action="mean" if self.texts else "plain",
            detail={"texts": len(self.texts), "failed": failed},
            fallback=None if self.texts else next(iter(failed), None),
        )


def draft_hypotheses(question: str, params: HydeParams) -> list[Write]:
    """Make the calls that write hypothetical documents: samples of one prompt, in the question's language."""
    passage = params.style == "passage"
    template = localise("hyde-passage", question) if passage else localise("hyde-solution", question)
    return [
        Write(template=template, decoding=params.decoding, slots={"question": question}, draw=draw)
        for draw in range(params.documents)
    ]


def read_hypotheses(question: str, replies: Sequence[Generated | Failure]) -> Hypotheses:
    """Return the texts of the replies, without reasoning; truncated ones are as good as others.

    Refusals and texts that say nothing are left out. Whether a text is about the question is not asked, for the reasons
    above; the question's own vector is part of the mean that is searched with.
    """
    texts, failures = [], []
    for reply in replies:
        if isinstance(reply, Failure):
            failures.append(reply.kind)
            continue
        text = remove_introduction(remove_reasoning(reply.text)).partition(END)[0].strip()[:MAX_QUESTION]
        if is_refusal(text) or not says_something(question, text):
            failures.append(FailureKind.UNPARSED)
        else:
            texts.append(text)
    return Hypotheses(tuple(texts), tuple(failures))


# Classify the intent of a question by rules (seed document 001), and weight the lists that suit it.

Intent = Literal["prove", "compare", "explain", "define", "calculate", "other"]

_ASIDE = re.compile(r"《[^《》]*》|\b(?:[A-Z][A-Za-z]+-?\d+(?:\.\d+)*|[A-Z]\d[A-Z])\b", re.ASCII)
"""Titles, and names with a number, such as GPT-4, CO2 and H2O, whose words are not part of the request."""


def _compile(intent: Intent, rule: str) -> tuple[Intent, re.Pattern[str]]:
    """Compile a rule. With ASCII letters alone there is a boundary of a word in `compare一下` as well."""
    return intent, re.compile(rule, re.IGNORECASE | re.DOTALL | re.ASCII)


_RULES = (
    _compile("prove", r"\b(?:prove|proof|show that|disprove|verify that)\b|[证證]明|求[证證]|[证證]出"),
    _compile(
        "compare",
        # "The positive difference between the roots" is a number, like the difference or number of other things.
        r"\bthe (?:main |key )?differences? between (?!(?:the|two|these|those|its)\b)"
        r"[a-z -]{1,80} and [a-z -]{1,80}\??\s*\Z"
        r"|\bdifferences between\b|\bhow (?:do|does|is|are)\b.{1,80}\bdiffer(?:ent)? from\b"
        r"|(?:\A|[.?!;:,]\s*|\b(?:and|please|to)\s)compare\b|\b(?:comparison|versus|vs\.?)(?![a-z])"
        r"|\b(?:which|who) (?:is|has|one is) (?:the )?(?:larger|greater|smaller|bigger|more|less)\b(?! than\b)"
        r"|比[较較]|[对對]比|[区區][别別]|差[异異别別]|[异異]同|有(?:何|什[么麼]|哪些)不同|不同之[处處]"
        r"|哪[个個](?:更|好)|[谁誰]更",
    ),
    _compile(
        "explain",
        r"\b(?:explain|why|how (?:do|does|can)|describe|intuition)\b|(?:\A|[.?!;:,]\s*)how to\b"
        r"|[为為](?:什[么麼]|何|啥)|(?<!不管)(?<!不[论論])(?<![无無][论論])(?:如何|怎[么麼样樣])"
        r"|解[释釋]|[说說]明|介[绍紹]|原理|原因|[优優]缺[点點]",
    ),
    _compile(
        "calculate",
        r"\b(?:value|sum|number|product|probability|area|volume|remainder|perimeter|distance|length) of\b"
        r"|\bdifference between\b"
        r"|的(?:值|和|差|[积積]|商|余[数數]|面[积積]|[体體][积積]|周[长長]|概率|[长長]度|距[离離]|[个個][数數])"
        r"(?:各|分[别別])?是什[么麼]",
    ),
    _compile(
        "define",
        r"\b(?:define|definition of|meaning of|what does .{1,60} (?:mean|stand for))\b|定[义義]|的概念"
        r"|什[么麼](?:是|叫|意思)|何[谓謂]|指的是什[么麼]|\A\D*是(?:什[么麼]|啥)"
        r"|\Awhat(?: (?:is|are)|'s) (?:an? )?[a-z' -]+\??\Z",
    ),
    _compile(
        "explain",
        r"\b(?:latest|recent) (?:advances|developments|progress|research|trends)\b|\bstate of the art\b"
        r"|最新[^，。？]{0,12}(?:[进進]展|[动動][态態]|研究|[技艺藝][术術]|[趋趨][势勢]|[发發]展|成果|突破|方法)",
    ),
    _compile(
        "calculate",
        r"\b(?:calculate|compute|evaluate|find|solve|simplify|determine|how (?:many|much|far|long|old))\b"
        r"|\d|[计計]算|求|多少|[几幾](?!何)|等[于於]|解方程|化[简簡]",
    ),
)
CONCEPTS = frozenset({"define", "explain", "compare"})
CONCEPT_WEIGHTS = (0.7, 0.3)
"""(dense, sparse) for questions about concepts, which vectors find better (001's weights; 003's table of uses)."""
EXACT = frozenset({"calculate", "prove"})
EXACT_WEIGHTS = (0.3, 0.7)
"""For those that hang on exact terms and numbers: the same, turned round. Neither is measured; off by default."""


def classify_intent(question: str) -> Intent:
    """Return the intent of the first rule that matches `question`, in English or Chinese; `other` if none does.

    "What is the area of ...?" asks for a number, "What is RAG?" for a definition; so do 面积是什么 and RAG是什么, where
    no digit precedes it. A question about the latest of something wants it described.
    """
    asked = _ASIDE.sub("X", question)
    for name, pattern in _RULES:
        if pattern.search(asked):
            return name
    return "other"


def choose_weights(wanted: Intent, params: FusionParams) -> tuple[float, float]:
    """Return the weights of dense and sparse lists: by intent if `fusion.by_intent` is set, else the job's own."""
    if params.by_intent and wanted in CONCEPTS:
        return CONCEPT_WEIGHTS
    if params.by_intent and wanted in EXACT:
        return EXACT_WEIGHTS
    return (params.dense, params.sparse)


# Recognise questions that are too vague to search for (seed document 003, on short queries).
#
# Of words that every document has, BM25 weighs how often and in how short a text they occur; a vector of such words
# lies in the middle, next to texts that are about nothing (hubs). Both lists have a first place all the same, and
# fusion takes it for relevance. It cannot be seen in the lists, whose scores are relative, but in the question.

Vagueness = Literal["generic", "short"]

FEW = 3
"""Fewer specific terms than these are short (003: `len(query.split()) < 3`)."""

_ANY_WORD = re.compile(r"[^\W\d_]+")
_RUN = re.compile(f"[{CHINESE}]+")


def classify_vagueness(question: str) -> Vagueness | None:
    """Return `generic` if no term is specific, `short` if fewer than 3 are, else None.

    A question without any term, of signs alone, is none of these: it has no words to search for, which does not make it
    noise.
    """
    specific = find_specific_terms(question)
    if not specific:
        return "generic" if extract_terms(question) else None
    return "short" if specific < FEW else None


def find_specific_terms(question: str) -> int:
    """Return mathematical terms and words that are not generic; in Chinese, two characters are a word."""
    exact = sum(len(extract_terms(question[start:end])) for start, end in find_mathematics(question))
    spoken = " ".join(list_prose(question)).lower()
    words = sum(not is_generic(word) for word in _ANY_WORD.findall(_RUN.sub(" ", spoken)))
    characters = sum(len(rest) for run in _RUN.findall(spoken) for rest in compile_generic_chinese().split(run))
    return exact + words + -(-characters // 2)


# Clean a question: normalise characters and blanks, and remove greetings and thanks.

_PLAIN = frozenset({"<wide>", "<narrow>", "<noBreak>", "<compat>"})
"""Compatibility forms that mean the same as their letter. Others do not: x² is not x2, ½ not 1⁄2, ℝ not R."""
_BLANKS = re.compile(r"\s+")
_POLITE = (
    r"hi|hello|hey|dear\s+\w+|please|kindly|excuse\s+me|thanks(?:\s+a\s+lot|\s+in\s+advance)?|thank\s+you(?:\s+very\s+much)?"
    r"|(?:can|could|would|will)\s+you(?:\s+(?:please|kindly))?(?:\s+(?:tell\s+me|help\s+me(?:\s+to)?))?"
    r"|(?:i\s+(?:want|would\s+like|need)|i'd\s+like)\s+to\s+know|(?:please\s+)?(?:tell|help)\s+me(?:\s+to)?|i\s+wonder"
)
_POLITE_ZH = (
    r"你好|您好|大家好|老师好|请问(?:一下)?|麻烦(?:你|您)?|劳驾|帮(?:我|忙)(?:一下)?|请(?!求|假|客|教)(?:你|您)?"
    r"|我想(?:要)?(?:知道|问)(?:一下)?|(?:能不能|能否|可以|可否)(?:请你|请您)?(?:告诉我|帮我)|谢谢(?:你|您|大家)?|多谢|感谢"
)
_FILLER = rf"(?:(?:{_POLITE})(?![A-Za-z'])|{_POLITE_ZH})"
_MARKS = " \t\n,.!?;:，。！？；：、~～"
_PAUSES = " \t\n,;:，；：、~～"
_FIRST = re.compile(_FILLER, re.IGNORECASE)
_LAST = re.compile(rf"(?<![A-Za-z]){_FILLER}\Z", re.IGNORECASE)
_LONGEST = 80
"""Length in characters of the longest polite phrase, which bounds the searched part of a question's end."""


def clean(question: str) -> str:
    """Return the question with plain characters, single blanks, and without polite phrases at its ends.

    Formulas are not changed, and neither is a question that consists only of polite phrases.
    """
    text = rest = change_outside(question, find_formulas(question), normalise_characters).strip()
    while found := _FIRST.match(bare := rest.lstrip(_MARKS)):
        rest = bare[found.end() :].lstrip(_PAUSES)
    while found := _LAST.search(bare := rest.rstrip(_MARKS), max(0, len(bare) - _LONGEST)):
        rest = bare[: found.start()].rstrip(_PAUSES)
    return rest if any(map(str.isalnum, rest)) else text


def normalise_characters(text: str) -> str:
    """Apply NFKC to forms that do not change the meaning, and replace every run of blanks by one blank."""
    folded = (
        unicodedata.normalize("NFKC", each) if unicodedata.decomposition(each).partition(" ")[0] in _PLAIN else each
        for each in unicodedata.normalize("NFC", text)
    )
    return _BLANKS.sub(" ", "".join(folded))


# Prepare a question for the search by rules, without a model (seed document 001: query enhancement).


class EnhancedQuestion(NamedTuple):
    """The question after the rules, and their decisions."""

    question: str
    """The cleaned and corrected question, about which the judge model is asked."""
    widened: str
    """The question followed by synonyms; it is searched for in addition to the original question."""
    intent: Intent
    vague: Vagueness | None
    dense: float
    """Weight of lists by vectors."""
    sparse: float
    """Weight of lists by words; 0 for a question of generic words, which says nothing to BM25."""
    decisions: tuple[Decision, ...]


def enhance(asked: str, params: EnhanceParams, fusion: FusionParams) -> EnhancedQuestion:
    """Clean, correct and widen the question, and find its intent and whether it is too vague."""
    terms = make_dictionary(params.terms)
    cleaned = clean(asked)
    question, corrections = terms.correct(cleaned) if params.correct else CorrectedQuestion(cleaned, {})
    synonyms = terms.synonyms(question) if params.synonyms else ()
    wanted, vague = classify_intent(question), classify_vagueness(question)
    dense, sparse = choose_weights(wanted, fusion)
    if vague == "generic" and dense:
        sparse = 0.0
    decisions = [Decision(stage="intent", action=wanted, detail={"dense": dense, "sparse": sparse})]
    if normalise_characters(cleaned) != normalise_characters(asked).strip():
        decisions.append(Decision(stage="clean", action="cleaned", detail={"question": cleaned}))
    if corrections:
        decisions.append(Decision(stage="correct", action="corrected", detail={**corrections}))
    if synonyms:
        decisions.append(Decision(stage="synonyms", action="widened", detail={"synonyms": list(synonyms)}))
    if vague:
        specific = float(find_specific_terms(question))
        decisions.append(Decision(stage="vague", action=vague, detail={"terms": specific}))
    return EnhancedQuestion(question, " ".join((question, *synonyms)), wanted, vague, dense, sparse, tuple(decisions))
