"""Use what the judge model writes about a question: another wording or simpler questions.

A reply is read without reasoning, introductions, labels, numbers, quotes and Markdown. A line of it is taken if it can
be searched with: it is new, not far longer than the question, no refusal, and says something. Anything else leaves the
original question (seed document 001).

Whether a line is about the question is not asked. Words cannot tell: "pi r squared" is about the area of a circle, and
a wording in another language, good for a corpus in that language, shares no word with the question. An embedder could,
but only jobs of `embedding` are pinned to one, and no threshold of a cosine holds for every embedder. A wrong wording
costs little, since what the question itself finds stays in the list; only the search by a rule, and that of another
corpus by keywords, have the wording alone. To refuse a right one costs the method.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from shared.calls import Write
from shared.mathtext.reasoning_blocks import remove_reasoning
from shared.params import EnhanceParams
from shared.rag.dictionary import is_generic
from shared.rag.language import localised
from shared.rag.tfidf import extract_terms
from shared.replies import Failure, FailureKind, Generated
from shared.samples import Decision

LONGEST = 2
"""A query may be so many times as long as the question, or have `SHORT` characters."""
SHORT = 200
MOST_LINES = 100
"""Lines of a reply that are looked at."""
MOST_DECORATIONS = 4
"""How many numbers, labels and ratings may stand one after the other, as in `1. **Query:**`."""

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


def rewrite(question: str, params: EnhanceParams) -> Write:
    """Make the call for another wording."""
    template = localised("rewrite", question)
    return Write(template=template, decoding=params.decoding, slots={"question": question})


def decompose(question: str, params: EnhanceParams) -> Write:
    """Make the call for at most `params.subqueries` simpler questions."""
    slots = {"question": question, "subqueries": str(params.subqueries)}
    return Write(template=localised("decompose", question), decoding=params.decoding, slots=slots)


def ask_for_keywords(question: str, params: EnhanceParams) -> Write:
    """Make the call for the keywords to search another corpus with."""
    return Write(template=localised("keywords", question), decoding=params.decoding, slots={"question": question})


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
    new = _drop_repeated(read, question)
    if read and not new:
        return WrittenQueries((), Decision(stage=stage, action="unchanged"))
    queries = tuple(islice((line for line in new if _is_searchable(line, question)), most))
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


def _drop_repeated(lines: Sequence[str], question: str) -> list[str]:
    """Return each line once, without the question itself."""
    first: dict[str, str] = {}
    for line in lines:
        first.setdefault(_normalise(line), line)
    first.pop(_normalise(question), None)
    return list(first.values())


def _is_searchable(line: str, question: str) -> bool:
    return len(line) <= max(SHORT, LONGEST * len(question)) and says_something(question, line)


def _normalise(text: str) -> str:
    """Normalise a text so that case, blanks and marks at its end do not count."""
    return " ".join(text.lower().split()).rstrip(" .?!。？！")
