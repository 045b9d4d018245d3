"""Find graders by name. A grader finds the answer in a reply and decides whether it is correct.

`mark` may take long on hostile input (a regular expression, a tower of powers): call it where it can be killed.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from shared.calls import MATHEMATICAL, Rules
from shared.mathtext import mathematics
from shared.rag import extraction
from shared.rag.extraction import Extract
from shared.rag.wording import contains_words, normalise_words
from shared.replies import Graded, Marked
from shared.shapes import PluginPin

LONGEST_PATTERN = 1000
"""Characters of a regular expression."""
THRESHOLD = 0.5
"""Token F1 from which an answer is right, by default."""
SEPARATORS = ",;\n、，；"
"""Of sets, by default."""

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
        LookupError: there is none; the message lists those that exist.
    """
    found = GRADERS.get(name or "math") or _adopted.get(name)
    if found is None:
        raise LookupError(f"there is no grader {name!r}; there are: {', '.join(grader_names())}")
    return found


def grader_names() -> tuple[str, ...]:
    """List the names of all graders, those of plug-ins last."""
    return (*GRADERS, *_adopted)


def grader_of_results(name: str) -> Grader:
    """Return the grader of this name to read stored grades; for a plug-in that is not installed, one with little more
    than the name."""
    return GRADERS.get(name or "math") or _adopted.get(name) or Grader(name, extraction.extract_final, None, "score")


def adopt(found: Grader) -> None:
    """Register the grader of a plug-in under its name."""
    _adopted[found.name] = found


def choose_marking_grader(name: str, *, peers: bool = False) -> str:
    """Return the grader that marks answers of a job: its own, or `text` in place of the judge model's.

    `last-number` marks as `math`; it only finds the answer in another way.

    `peers`: answers are compared with each other. `text` compares them for `regex` too, as an answer is no pattern, and
    `math` for `math-dataset`, by whose rules 5% equals both 5 and 0.05.

    Raises:
        LookupError: there is no such grader.
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
        LookupError: there is no such grader, or it is the judge model.
    """
    found = get_grader(rules.grader)
    if found.mark is None:
        raise LookupError(f"grader {rules.grader!r} asks the judge model: it cannot mark an answer by itself")
    if answer is None:
        return _make_verdict_without_answer(found)
    return choose_best_verdict([found.mark(answer, each, rules) for each in (gold, *rules.golds)])


def _make_verdict_without_answer(found: Grader) -> Graded | Marked:
    if found.name in MATHEMATICAL:
        return Graded(math_verify=False, strict=False)
    return Marked(correct=False, strict=False, score=0.0 if found.score else None)


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
        InvalidGold: it is none, or it is too long.
    """
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
    expected = extraction.choose_letter(gold, rules.choices)
    return Marked(correct=expected is not None and extraction.choose_letter(answer, rules.choices) == expected)


def _set(answer: str, gold: str, rules: Rules) -> Marked:
    given, expected = (split_members(text, rules.separators) for text in (answer, gold))
    return Marked(correct=given == expected, strict=_is_same(answer, gold), score=compute_f1([*given], [*expected]))


def split_members(text: str, separators: str = "") -> frozenset[tuple[str, ...]]:
    r"""Return the members of a set as words, split at any of `separators` (none: the default ones).

    The braces `{}`, `\{ \}`, `[]` or `()` around all of it are no part of them.
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
        Grader("math", extraction.extract_mathematics, _mathematics),
        Grader("math-dataset", extraction.extract_mathematics, _mathematics_of_dataset),
        Grader("last-number", extraction.extract_number, _mathematics),
        Grader("exact", extraction.extract_final, _grade_exactly, worded=True),
        Grader("text", extraction.extract_final, _text, worded=True),
        Grader("contains", extraction.extract_final, _contains, worded=True),
        Grader("f1", extraction.extract_final, _f1, "token F1", worded=True),
        Grader("regex", extraction.extract_final, _regex),
        Grader("choice", extraction.extract_choice, _choice),
        Grader("set", extraction.extract_final, _set, "F1 of the sets", worded=True),
        Grader("rubric", extraction.take_whole, None, "the judge model's rating, 1 to 5", most=5.0),
    )
}
EXTRACTS: Mapping[str, Extract] = {
    "boxed": extraction.extract_boxed,
    "mathematics": extraction.extract_mathematics,
    "last-number": extraction.extract_number,
    "final": extraction.extract_final,
    "whole": extraction.take_whole,
    "choice": extraction.extract_choice,
}
"""How a grader may find the answer in a reply, by name: replays do it, so that it is none of a plug-in's business."""
