"""Graders: extract an answer from a reply, and mark it."""

import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from mathrag.reasoning import remove_reasoning
from shared.calls import MATHEMATICAL, Rules
from shared.mathtext import answers, mathematics
from shared.params import GradingParams
from shared.rag.text import contains_words, join_phrase, normalise_words
from shared.replies import Graded, Marked
from shared.samples import Candidate, ExtractedBy, Extraction, Item, Library
from shared.shapes import PluginPin

# Find the answer in a reply, and say by which rule it was found.
#
# Reasoning blocks are removed first. Then the first of these rules that finds something decides:
#
# 1. boxed: the last `\boxed{}` or `\fbox{}`;
# 2. marked or stated, whichever comes last: a line `Answer: 18` (also `#### 18`, `<answer>18</answer>` and a heading
# `Final Answer`), or a sentence such as "The answer is 18." or 答案是18;
# 3. whole: the complete reply, for answers in words, or if it is a bare formula such as `18`;
# 4. last_number: the last number of the reply, for `last-number` only.
#
# The forms are those that lm-evaluation-harness, Minerva, GSM8K, inspect_ai and simple-evals ask models for. Time is
# linear in the reply.

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
    """None without an answer."""


Extract = Callable[[str], Extracted]

_ADJECTIVES = r"(?:(?:final|correct|right|best|overall|numerical|my|our|the)\s+){0,4}"
_TAGGED = re.compile(r"<answer>", re.IGNORECASE)
_END_OF_TAGGED = re.compile(r"</answer>", re.IGNORECASE)
_HASHED = re.compile(r"^[ \t]*####[ \t]*(?=\S)", re.MULTILINE)
_NUMBER = r"[-+−]?[$€£¥]?\s?[-+−]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:/\d+)?\s?%?"
_NUMBER_ON_LINE = re.compile(rf"{_NUMBER}[ \t\r]*$", re.MULTILINE)
_ANY_NUMBER = re.compile(rf"(?<![\w.]){_NUMBER}")
# A line that begins with the word, with any Markdown around it. Without a colon it is a heading.
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
    """Return the complete reply without its reasoning, for rating by a rubric."""
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
        # GSM8K's mark precedes a number, or any text on the last line. Elsewhere it is a heading of Markdown.
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
    """Return the text at `start`: a displayed formula, else the line, or all up to `</answer>` if it is `tagged`."""
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
    one digit or letter next to them, as in "1 3 bedrooms", may contradict them. Then the answer names no choice.
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


# Find graders by name. A grader finds the answer in a reply and decides whether it is correct.
#
# `mark` may take long on hostile input (a regular expression, a tower of powers): call it where it can be killed.

TEXT_VERSION = 1
"""Raised whenever a verdict of a grader that is not mathematical changes, so that answers are graded again;
tests/unit/shared/runtime/test_outcomes.py fails until it is."""
LONGEST_PATTERN = 1000
"""Characters of a regular expression."""
THRESHOLD = 0.5
"""Token F1 from which an answer is right, by default."""
SEPARATORS = ",;\n、，；"
"""Of sets, by default."""

_WORD = re.compile(r"[^\W\d_]{2,}")
_MATHEMATICS = re.compile(r"[\d\\^=+*/<>√π]")


def is_words(gold: str) -> bool:
    """Tell whether a gold answer is words, such as "Bern" and "in the cupboard", and no number or formula."""
    return _WORD.search(gold) is not None and _MATHEMATICS.search(gold) is None


def describe_words(words: int, golds: int) -> str:
    """Say that `words` of `golds` expected answers are words although they are graded as mathematics."""
    return (
        f"{words} of {golds} expected answers are words, but are graded as mathematics: to grade texts, add"
        " --grader text (or contains, f1; docs/how-to/graders.md)"
    )


Mark = Callable[[str, str, Rules], Graded | Marked]


class InvalidGold(ValueError):
    """A gold answer that its grader cannot use; the message tells why, and what to write instead."""


class Grader(NamedTuple):
    """One way to grade."""

    name: str
    extract: Extract
    """The answer in a reply."""
    mark: Mark | None
    """(answer, gold, rules): the verdict against one gold answer. None: the judge model rates the reply."""
    score: str | None = None
    """Name of the verdict's score; None if it has none."""
    most: float = 1.0
    """The highest score."""
    worded: bool = False
    """Whether its gold answers are texts, which may occur in a document."""
    plugin: PluginPin | None = None
    """The plug-in that it comes from; None if it is shipped."""


_adopted: dict[str, Grader] = {}
"""Graders of plug-ins."""


def get_grader(name: str) -> Grader:
    """Return the grader of this name; "" stands for `math`.

    Raises:
        LookupError: it does not exist; the message lists those that exist.
    """
    found = GRADERS.get(name or "math") or _adopted.get(name)
    if found is None:
        raise LookupError(f"unknown grader {name!r}; choose one of {', '.join(grader_names())}")
    return found


def grader_names() -> tuple[str, ...]:
    """List the names of all graders, those of plug-ins last."""
    return (*GRADERS, *_adopted)


def grader_of_results(name: str) -> Grader:
    """Return the grader of this name to read stored grades; for a plug-in that is not installed, one with little more
    than the name."""
    return GRADERS.get(name or "math") or _adopted.get(name) or Grader(name, extract_final, None, "score")


def adopt(found: Grader) -> None:
    """Register the grader of a plug-in under its name."""
    _adopted[found.name] = found


def choose_marking_grader(name: str, *, peers: bool = False) -> str:
    """Return the grader that marks answers of a job: its own, or `text` in place of the judge model's.

    `last-number` marks as `math`; it only finds the answer in another way.

    `peers`: answers are compared with each other. `text` compares them for `regex` too, as an answer is no pattern, and
    `math` for `math-dataset`, by whose rules 5% equals both 5 and 0.05.

    Raises:
        LookupError: the grader does not exist.
    """
    found = get_grader(name)
    if found.name == "last-number" or (peers and found.name in MATHEMATICAL):
        return "math"
    return "text" if found.mark is None or (peers and found.name == "regex") else found.name


def mark(answer: str | None, gold: str, rules: Rules) -> Graded | Marked:
    """Mark `answer` against `gold` and the other gold answers of `rules`: it is correct if it matches any of them.

    No answer is a wrong answer.

    Raises:
        InvalidGold: the gold answer is not one that the grader can use.
        LookupError: the grader does not exist, or it is the judge model.
    """
    found = get_grader(rules.grader)
    if found.mark is None:
        raise LookupError(f"grader {rules.grader!r} asks the judge model: it cannot mark an answer by itself")
    if answer is None:
        if found.name in MATHEMATICAL:
            return Graded(math_verify=False, strict=False)
        return Marked(correct=False, strict=False, score=0.0 if found.score else None)
    return choose_best_verdict([found.mark(answer, each, rules) for each in (gold, *rules.golds)])


def choose_best_verdict(verdicts: Sequence[Graded | Marked]) -> Graded | Marked:
    """Return the best verdict of one grader on one answer against several gold answers."""
    return max(verdicts, key=lambda each: (each.correct is True, each.score or 0.0, each.strict is True))


def check_gold(name: str, gold: str) -> None:
    """Check that the grader called `name` can use `gold`.

    Raises:
        InvalidGold: it cannot.
    """
    if name == "regex":
        compile_pattern(gold)


def compile_pattern(gold: str) -> re.Pattern[str]:
    """Compile the regular expression (Python's `re`) of a gold answer.

    Raises:
        InvalidGold: it is not a valid expression, or it is too long.
    """
    # These messages are stored as replies of the grader: a new wording needs a new `TEXT_VERSION`.
    if len(gold) > LONGEST_PATTERN:
        raise InvalidGold(f"the regular expression has {len(gold)} characters, it may have {LONGEST_PATTERN}")
    try:
        return re.compile(gold)
    except (re.error, RecursionError, OverflowError) as error:
        raise InvalidGold(f"{gold[:80]!r} is no regular expression: {error}; escape it, or choose `text`") from error


def _mathematics(answer: str, gold: str, _rules: Rules) -> Graded:
    return mathematics.grade(answer, gold)


def _mathematics_of_dataset(answer: str, gold: str, _rules: Rules) -> Graded:
    """Grade by MATH's conventions: what its string rules call the same is right, even where values differ.

    They leave out per cent signs and names, so that 5 is right for 5%, and y=5 for x=5.
    """
    found = mathematics.grade(answer, gold)
    return Graded(math_verify=True, strict=True) if found.strict else found


def _grade_exactly(answer: str, gold: str, _rules: Rules) -> Marked:
    same = _is_same(answer, gold)
    return Marked(correct=same, strict=same)


def _text(answer: str, gold: str, _rules: Rules) -> Marked:
    return Marked(correct=normalise_words(answer) == normalise_words(gold), strict=_is_same(answer, gold))


def _contains(answer: str, gold: str, _rules: Rules) -> Marked:
    return Marked(correct=contains_words(normalise_words(gold), normalise_words(answer)), strict=_is_same(answer, gold))


def _f1(answer: str, gold: str, rules: Rules) -> Marked:
    score = compute_f1(normalise_words(answer), normalise_words(gold))
    return Marked(
        correct=score >= (THRESHOLD if rules.threshold is None else rules.threshold),
        strict=_is_same(answer, gold),
        score=score,
    )


def _regex(answer: str, gold: str, _rules: Rules) -> Marked:
    return Marked(correct=compile_pattern(gold).search(answer) is not None)


def _choice(answer: str, gold: str, rules: Rules) -> Marked:
    expected = choose_letter(gold, rules.choices)
    return Marked(correct=expected is not None and choose_letter(answer, rules.choices) == expected)


def _set(answer: str, gold: str, rules: Rules) -> Marked:
    given, expected = (split_members(text, rules.separators) for text in (answer, gold))
    return Marked(correct=given == expected, strict=_is_same(answer, gold), score=compute_f1([*given], [*expected]))


def split_members(text: str, separators: str = "") -> frozenset[tuple[str, ...]]:
    r"""Return the members of a set as words, split at any of `separators` (none: the default ones).

    The braces `{}`, `\{ \}`, `[]` or `()` around all of it are not part of them.
    """
    inside = text.strip().removeprefix("\\").removesuffix("\\}").strip(string.whitespace + "{}[]()")
    parts = re.split("[" + re.escape(separators or SEPARATORS) + "]" + r"|\band\b|\s和\s", inside)
    return frozenset(tuple(normalise_words(part)) for part in parts if part.strip())


def compute_f1(given: Sequence[object], expected: Sequence[object]) -> float:
    """Return F1 in [0, 1], the harmonic mean of precision and recall; 1 if both are empty."""
    common = (Counter(given) & Counter(expected)).total()
    return 2 * common / (len(given) + len(expected)) if given or expected else 1.0


def _is_same(answer: str, gold: str) -> bool:
    return answer.strip() == gold.strip()


GRADERS: Mapping[str, Grader] = {
    each.name: each
    for each in (
        Grader("math", extract_mathematics, _mathematics),
        Grader("math-dataset", extract_mathematics, _mathematics_of_dataset),
        Grader("last-number", extract_number, _mathematics),
        Grader("exact", extract_final, _grade_exactly, worded=True),
        Grader("text", extract_final, _text, worded=True),
        Grader("contains", extract_final, _contains, worded=True),
        Grader("f1", extract_final, _f1, "token F1", worded=True),
        Grader("regex", extract_final, _regex),
        Grader("choice", extract_choice, _choice),
        Grader("set", extract_final, _set, "F1 of the sets", worded=True),
        Grader("rubric", take_whole, None, "the judge model's rating, 1 to 5", most=5.0),
    )
}
EXTRACTS: Mapping[str, Extract] = {
    "boxed": extract_boxed,
    "mathematics": extract_mathematics,
    "last-number": extract_number,
    "final": extract_final,
    "whole": take_whole,
    "choice": extract_choice,
}
"""How a grader may find the answer in a reply, by name: replays do it, so that it is none of a plug-in's business."""

# Find the rank at which a search found an answer: R@k is computed from it (document 002), without relevance
# judgements.


def list_answer_phrases(item: Item, grading: GradingParams) -> set[str]:
    """Return the phrases of the item's gold answers; for `set`, those of their members.

    Empty where the item has none, or where they are no texts that a document could hold: for `math` 1/2 and 0.5 are one
    answer, a choice is a letter, and a regular expression a pattern.
    """
    golds = () if item.gold is None else (item.gold, *item.expected.golds)
    found = get_grader(grading.grader)
    if not found.worded:
        return set()
    if found.name == "set":
        return {join_phrase(member) for gold in golds for member in split_members(gold, grading.separators) if member}
    return {join_phrase(answer) for gold in golds if (answer := normalise_words(gold))}


def find_answer_rank(candidates: Sequence[Candidate], answers: Collection[str], library: Library) -> int | None:
    """Return the rank, from 1, of the first candidate whose normalised words contain one of `answers`, or None.

    Raises:
        KeyError: `library` lacks a candidate.
    """
    for candidate in sorted(candidates, key=lambda each: each.rank):
        text = join_phrase(normalise_words(library[candidate.document].whole))
        if any(answer in text for answer in answers):
            return candidate.rank
    return None
