r"""Find the answer in a reply, and say by which rule it was found.

Reasoning blocks are removed first. Then the first of these rules that finds something decides:

1. boxed: the last `\boxed{}` or `\fbox{}`;
2. marked or stated, whichever comes last: a line `Answer: 18` (also `#### 18`, `<answer>18</answer>` and a heading
   `Final Answer`), or a sentence such as "The answer is 18." or 答案是18;
3. whole: the complete reply, for answers in words, or if it is a bare formula such as `18`;
4. last_number: the last number of the reply, for `last-number` only.

The forms are those that lm-evaluation-harness, Minerva, GSM8K, inspect_ai and simple-evals ask models for. Time is
linear in the reply.
"""

import re
import string
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from shared.mathtext import answers
from shared.mathtext.reasoning_blocks import remove_reasoning
from shared.rag.wording import contains_words, normalise_words
from shared.samples import ExtractedBy, Extraction

LETTERS = string.ascii_uppercase
"""Letters of choices."""
MOST_PROSE_WORDS = 5
"""Words of an answer to mathematics: `Monday` and `2 and 3 apples per day` are answers, a line of working is not."""
MOST_BARE_CHARACTERS = 200
MOST_BARE_WORDS = 2
"""Of a reply that is nothing but an answer to mathematics, such as `18 apples`."""
MOST_STATEMENTS = 20
"""Statements that are read, the last first, so that a hostile reply costs no more than a few readings of itself."""


class Extracted(NamedTuple):
    """The answer of a reply."""

    answer: str | None
    extraction: Extraction
    rule: ExtractedBy | None = None
    """None if there is no answer."""


Extract = Callable[[str], Extracted]

_ADJECTIVES = r"(?:(?:final|correct|right|best|overall|numerical|my|our|the)\s+){0,4}"
_TAGGED = re.compile(r"<answer>", re.IGNORECASE)
_END_OF_TAGGED = re.compile(r"</answer>", re.IGNORECASE)
_HASHED = re.compile(r"^[ \t]*####[ \t]*(?=\S)", re.MULTILINE)
_NUMBER = r"[-+−]?[$€£¥]?\s?[-+−]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+)?\s?%?"
_NUMBER_ON_LINE = re.compile(rf"{_NUMBER}[ \t\r]*$", re.MULTILINE)
_ANY_NUMBER = re.compile(rf"(?<![\w.]){_NUMBER}")
# A line that begins with the word, whatever Markdown stands around it. Without a colon it is a heading.
_MARKED = re.compile(
    rf"^[ \t>*_#\-`]*(?:{_ADJECTIVES}(?:answer|result)|(?:最终|正确|最后)?答案|答)(?:\s*\([^()\n]{{0,40}}\))?"
    r"[ \t*_`]*(?:[:：]|$)",
    re.IGNORECASE | re.MULTILINE,
)
_STATED = re.compile(
    r"(?:\b(?:answers?|results?|solutions?|(?:correct|right|best)\s+(?:option|choice|letter))\b"
    r"(?:[\s*_]*[:：=]|[^.\n:：=。!?]{0,60}?\b(?:is|are|equals|(?:should|must|would|will|has\s+to)\s+be)\b(?!\s+not\b))"
    r"|(?:答案|结果)\s*(?:应该|应当|应|就)?\s*(?:是|为|等于|[:：=]))[\s:：]*",
    re.IGNORECASE,
)
_BLANKS = re.compile(r"[\s*_`]*")
_DISPLAY = re.compile(r"(?:\\\[(?P<bracket>.*?)\\\]|\$\$(?P<dollars>.*?)\$\$)", re.DOTALL)
_NO_VALUE = re.compile(
    r"(?:not|to|that|as|given|obtained|found|correct|incorrect|right|wrong|because|therefore|when|where|what|how|below"
    r"|above)\b",
    re.IGNORECASE,
)
_HOPE = re.compile(r"\bI hope (?:it|this) is correct", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<![A-Z])[.!?](?=[*_\"”')\]]*\s+[A-Z\"“(*\u4e00-\u9fff])|[。！？；]")
_ABBREVIATION = re.compile(r"(?:^|\W)(?:Mr|Mrs|Ms|Dr|St|Prof|Jr|Sr|Mt|No|vs|etc|approx)\Z")
_FULL_STOP = re.compile(r"(?<=[^\W_A-Z])[.!]\Z|(?<=[)}\]$])[.!]\Z")
_REASON = re.compile(
    r"(?<![\s,;(])[\s,;(]+(?:because|since|so that|which|as (?:it|the|this|we)|where|hence|therefore)\b"
    r"|[，,](?:因为|所以|因此)"
)
_TEXT = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf)\s*\{([^{}]*)\}")
_BOLD = re.compile(r"(?<!\w)(?:\*\*|__)|(?:\*\*|__)(?!\w)")
"""Markdown's marks, not the power in `2**3`."""
_MATH = re.compile(r"\$\$?([^$]*)\$\$?")
_DELIMITER = re.compile(r"\\[()\[\]]")
_QUOTES = "`\"'“”‘’"
_BARE = re.compile(r"[-+−(\[{$\\\d√.]|[A-Za-z]\s*=|[^\W\d_]+\Z")
"""Begins a reply that is nothing but an answer: a number, a formula, a named value, or a single word."""
_PROSE = re.compile(r"(?<![\\a-zA-Z])[a-zA-Z]{2,}(?![a-zA-Z])")

# Of choices.
_BEHIND_LETTER = (
    r"(?=\s*[,，;；。]|\s+[-–—]\s|\s+(?:because|since|as|due|for)\b"
    r"|\s+(?:is|was|must\s+be|seems)\s+(?!not\b|incorrect|wrong|false)|\s*(?:因为|是正确|正确))"
)
_ALONE = re.compile(r"\W*(?:(?:option|choice|answer|letter)\s+|选项\s*)?(?P<letter>[A-Za-z])\W*", re.IGNORECASE)
_LEADING = re.compile(
    r"\W*(?:(?:[Oo]ption|[Cc]hoice|[Aa]nswer|[Ll]etter)\s+|选项\s*)?"
    rf"(?:\((?P<round>[A-Za-z])\)|(?P<plain>[A-Z])(?:\s*[.:：)\]](?!\w)|{_BEHIND_LETTER}))"
)
_BRACKETED = re.compile(r"\((?P<letter>[A-Z])\)")
_ANOTHER_LETTER = re.compile(r"\s*(?:,|/|&|，|、|\bor\b|\band\b|或|和)\s*\(?(?:[A-Z]\)?(?!\w)|(?:option|choice)\b)")
_CHOSEN = re.compile(
    r"(?:\((?=[A-Z]\))|(?<![\w'’]))(?P<letter>[A-Z])\)?\s+(?:is|must\s+be|seems)\s+(?:indeed\s+|clearly\s+)?(?:the\s+)?(?:most\s+|only\s+)?"
    r"(?:correct|right|best|answer|accurate|appropriate)\b"
    r"|\b[Ii]\s+(?:would\s+|will\s+)?(?:choose|pick|select|go\s+with)\s+(?:option\s+|choice\s+|answer\s+)?\(?(?P<picked>[A-Z])(?![\w'’])"
    r"|选(?:择)?(?:选项)?\s*[:：]?\s*[(（]?(?P<chinese>[A-Z])(?![A-Za-z])|(?P<right>[A-Z])\s*项?是?正确"
)


def extract_boxed(text: str) -> Extracted:
    r"""Return the content of the last `\boxed{}`, and nothing else."""
    return _extract(text, lambda _: None)


def extract_mathematics(text: str) -> Extracted:
    """Return a mathematical answer: boxed, marked or stated, or a reply that is nothing but one."""
    return _extract(text, lambda kept: _find_formula(kept) or _find_bare_formula(kept))


def extract_number(text: str) -> Extracted:
    """Return a mathematical answer: boxed, marked or stated, else the last number of the reply."""
    return _extract(text, lambda kept: _find_formula(kept) or _find_last_number(kept))


def extract_final(text: str) -> Extracted:
    r"""Return an answer in words: boxed, marked or stated, else the whole reply.

    `\text{}` around words, quotes and Markdown's bold marks are left out.
    """
    found = _extract(text, _find_words)
    return found._replace(answer=_unwrap_text(found.answer)) if found.rule is ExtractedBy.BOXED else found


def take_whole(text: str) -> Extracted:
    """Return the complete reply without its reasoning, which is what a rubric rates."""
    kept = remove_reasoning(text)
    return Extracted(kept, Extraction.OK, ExtractedBy.WHOLE) if kept else _extract(text, lambda _: None)


def extract_choice(text: str) -> Extracted:
    """Return the letter that a reply chooses, or its final answer if it states no letter."""
    found = _extract(text, _find_choice)
    if found.rule is not ExtractedBy.BOXED:
        return found
    boxed = _unwrap_text(found.answer)
    return found._replace(answer=read_letter(boxed) or boxed)


_Found = tuple[str, ExtractedBy] | None


def _extract(text: str, find: Callable[[str], _Found]) -> Extracted:
    """Return the box, else what `find` finds in the text without its reasoning, else why there is nothing."""
    kept = remove_reasoning(text)
    if not kept:
        return Extracted(None, Extraction.ONLY_REASONING if text.strip() else Extraction.EMPTY)
    boxed, extraction = answers.extract(kept)
    if boxed is not None:
        return Extracted(boxed, Extraction.OK, ExtractedBy.BOXED)
    found = find(kept)
    return Extracted(None, extraction) if found is None else Extracted(found[0], Extraction.OK, found[1])


def _find_formula(text: str) -> _Found:
    for said, rule in _read_statements(text):
        value = _strip_sentence(said)
        if value and r"\boxed" not in value and len(_PROSE.findall(_TEXT.sub("", value))) <= MOST_PROSE_WORDS:
            return value, rule
    return None


def _find_bare_formula(text: str) -> _Found:
    whole = _strip_sentence(text) if len(text) <= MOST_BARE_CHARACTERS and "\n" not in text.strip() else ""
    words = len(_PROSE.findall(_TEXT.sub("", whole)))
    is_bare = _BARE.match(whole) and words <= MOST_BARE_WORDS and r"\boxed" not in whole
    return (whole, ExtractedBy.WHOLE) if is_bare else None


def _find_last_number(text: str) -> _Found:
    numbers = _ANY_NUMBER.findall(text)
    return (numbers[-1].strip(), ExtractedBy.LAST_NUMBER) if numbers else None


def _find_words(text: str) -> _Found:
    for said, rule in _read_statements(text):
        if value := _FULL_STOP.sub("", _read_first_sentence(said)):
            return value, rule
    whole = _strip_marks(text)
    return (whole, ExtractedBy.WHOLE) if whole else None


def _find_choice(text: str) -> _Found:
    for said, rule in _read_statements(text):
        if letter := read_letter(_read_first_sentence(said)):
            return letter, rule
    if chosen := [next(filter(None, match.groups())) for match in _CHOSEN.finditer(text)]:
        return chosen[-1], ExtractedBy.STATED
    final = _find_words(text)
    return final and (read_letter(final[0]) or final[0], final[1])


def _read_statements(text: str) -> Iterator[tuple[str, ExtractedBy]]:
    """Yield what the last statements mark or state as the answer, the last first."""
    text = _TEXT.sub(lambda match: match[1] if _STATED.search(match[1]) else match[0], text)
    places: dict[int, ExtractedBy] = {}
    for match in _STATED.finditer(text):
        if not _NO_VALUE.match(text, match.end()):
            places[_skip_blanks(text, match.end())] = ExtractedBy.STATED
    end = len(text.rstrip())
    for match in _HASHED.finditer(text):
        # GSM8K's mark stands before a number, or anything on the last line. Elsewhere it is a heading of Markdown.
        if _NUMBER_ON_LINE.match(text, match.end()) or text.find("\n", match.end(), end) < 0:
            places[match.end()] = ExtractedBy.MARKED
    for match in _MARKED.finditer(text):
        places[_skip_blanks(text, match.end())] = ExtractedBy.MARKED
    tagged = {_skip_blanks(text, match.end()) for match in _TAGGED.finditer(text)}
    places |= dict.fromkeys(tagged, ExtractedBy.MARKED)
    for place in sorted(places, reverse=True)[:MOST_STATEMENTS]:
        if said := _read_value(text, place, tagged=place in tagged):
            yield said, places[place]


def _skip_blanks(text: str, place: int) -> int:
    match = _BLANKS.match(text, place)
    return match.end() if match else place


def _read_value(text: str, start: int, *, tagged: bool) -> str:
    """Return what stands at `start`: a displayed formula, else the line, or all up to `</answer>` if it is `tagged`."""
    if tagged:
        end = _END_OF_TAGGED.search(text, start)
        return text[start : end.start() if end else len(text)].strip()
    if displayed := _DISPLAY.match(text, start):
        return displayed["bracket"] or displayed["dollars"] or ""
    end_of_line = text.find("\n", start)
    return text[start : len(text) if end_of_line < 0 else end_of_line]


def _read_first_sentence(said: str) -> str:
    """Return the first sentence of a stated answer, without emphasis and quotes."""
    if hope := _HOPE.search(said):
        said = said[: hope.start()]
    said = said.strip()
    for end in _SENTENCE_END.finditer(said):
        if not _ABBREVIATION.search(said[max(0, end.start() - 8) : end.start()]):
            said = said[: end.start()]
            break
    return _strip_marks(said)


def _strip_sentence(said: str) -> str:
    """Return the formula of a stated answer, without the sentence around it."""
    value = _read_first_sentence(said)
    if reason := _REASON.search(value):
        value = value[: reason.start()]
    return _DELIMITER.sub("", _MATH.sub(r"\1", value)).strip().rstrip(".,;:。，$").strip()


def _strip_marks(text: str) -> str:
    text = _BOLD.sub("", text).strip()
    return text.strip(_QUOTES).strip() if text[:1] in _QUOTES and text[-1:] in _QUOTES else text


def _unwrap_text(answer: str | None) -> str:
    return _TEXT.sub(r"\1", answer or "").strip()


def read_letter(text: str) -> str | None:
    """Return the letter that a statement chooses: alone ("b", "**B**"), in front ("B. Paris", "B because ...", "option
    B, since ..."), or the only "(B)" in it.

    None where it chooses none, or names several.
    """
    if alone := _ALONE.fullmatch(text):
        return alone["letter"].upper()
    if leading := _LEADING.match(text):
        if _ANOTHER_LETTER.match(text, leading.end()):
            return None
        return (leading["round"] or leading["plain"]).upper()
    named = {match["letter"] for match in _BRACKETED.finditer(text)}
    return named.pop() if len(named) == 1 else None


def choose_letter(answer: str, choices: Sequence[str]) -> str | None:
    """Return the letter that an answer chooses; an answer without one is compared with the texts of the choices.

    Without a letter it is the choice that reads the same, else the only one whose words stand in the answer. A label of
    one digit or letter beside them, as in "1 3 bedrooms", may contradict them: then there is none.
    """
    stated = read_letter(_unwrap_text(extract_choice(answer).answer))
    if stated is not None and (not choices or stated in LETTERS[: len(choices)]):
        return stated
    given = normalise_words(_unwrap_text(answer))
    texts = [normalise_words(choice) for choice in choices]
    if given in texts:
        return LETTERS[texts.index(given)]
    within = [place for place, text in enumerate(texts) if contains_words(text, given)]
    if len(within) != 1 or (len(given[0]) == 1 and given[0].isascii() and given[0] not in texts[within[0]]):
        return None
    return LETTERS[within[0]]
