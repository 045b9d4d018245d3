"""The graders by name: how an answer is found in a reply, and when it is right. Every lookup of a grader ends here.

`mark` may take long on hostile input (a regular expression, a tower of powers): call it where it can be killed.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from shared.contracts.grading import Rules
from shared.contracts.replies import Graded, Marked
from shared.contracts.samples import Extraction
from shared.mathtext import answers, mathematics
from shared.rag import choices, statements
from shared.rag.wording import stand_in, words

LONGEST_PATTERN = 1000
"""Characters of a regular expression."""
THRESHOLD = 0.5
"""Token F1 from which an answer is right, by default."""
SEPARATORS = ",;\n、，；"
"""Of sets, by default."""

Extract = Callable[[str], tuple[str | None, Extraction]]
Mark = Callable[[str, str, Rules], Graded | Marked]


class InvalidGold(ValueError):
    """A gold answer that its grader cannot use; the message says why, and what to write instead."""


class Grader(NamedTuple):
    """One way to grade."""

    name: str
    extract: Extract
    """The answer in a reply."""
    mark: Mark | None
    """(answer, gold, rules): the verdict against one gold answer. None: the judge model rates the reply."""
    score: str | None = None
    """What a verdict's score is; None: it has none."""
    most: float = 1.0
    """The highest score."""
    worded: bool = False
    """Whether its gold answers are texts, which may occur in a document."""


def grader(name: str) -> Grader:
    """The grader of this name; "" is `math`.

    Raises:
        LookupError: there is none; the message lists those that exist.
    """
    found = GRADERS.get(name or "math")
    if found is None:
        raise LookupError(f"there is no grader {name!r}; there are: {', '.join(GRADERS)}")
    return found


def marking(name: str, *, peers: bool = False) -> str:
    """The grader that marks answers of a job: its own, or `text` in place of the judge model's.

    `peers`: answers are compared with each other. `text` compares them for `regex` too, as an answer is no pattern.

    Raises:
        LookupError: there is no such grader.
    """
    found = grader(name)
    return "text" if found.mark is None or (peers and found.name == "regex") else found.name


def mark(answer: str | None, gold: str, rules: Rules) -> Graded | Marked:
    """The verdict on `answer` against `gold` and the further gold answers of `rules`: right if it matches any of them.

    No answer is a wrong answer.

    Raises:
        InvalidGold: the gold answer is not one that the grader can use.
        LookupError: there is no such grader, or it is the judge model.
    """
    found = grader(rules.grader)
    if found.mark is None:
        raise LookupError(f"grader {rules.grader!r} asks the judge model: it cannot mark an answer by itself")
    if answer is None:
        return _unanswered(found)
    return best([found.mark(answer, each, rules) for each in (gold, *rules.golds)])


def _unanswered(found: Grader) -> Graded | Marked:
    if found.name == "math":
        return Graded(math_verify=False, strict=False)
    return Marked(correct=False, strict=False, score=0.0 if found.score else None)


def best(verdicts: Sequence[Graded | Marked]) -> Graded | Marked:
    """The best of one answer's verdicts against several gold answers; they are of one grader."""
    return max(verdicts, key=lambda each: (each.correct is True, each.score or 0.0, each.strict is True))


def check_gold(name: str, gold: str) -> None:
    """Return if the grader called `name` can use `gold`.

    Raises:
        InvalidGold: it cannot.
    """
    if name == "regex":
        pattern(gold)


def pattern(gold: str) -> re.Pattern[str]:
    """The regular expression (Python's `re`) that a gold answer is.

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


def _exact(answer: str, gold: str, _rules: Rules) -> Marked:
    same = _same(answer, gold)
    return Marked(correct=same, strict=same)


def _text(answer: str, gold: str, _rules: Rules) -> Marked:
    return Marked(correct=words(answer) == words(gold), strict=_same(answer, gold))


def _contains(answer: str, gold: str, _rules: Rules) -> Marked:
    return Marked(correct=stand_in(words(gold), words(answer)), strict=_same(answer, gold))


def _f1(answer: str, gold: str, rules: Rules) -> Marked:
    score = overlap(words(answer), words(gold))
    return Marked(
        correct=score >= (THRESHOLD if rules.threshold is None else rules.threshold),
        strict=_same(answer, gold),
        score=score,
    )


def _regex(answer: str, gold: str, _rules: Rules) -> Marked:
    return Marked(correct=pattern(gold).search(answer) is not None)


def _choice(answer: str, gold: str, rules: Rules) -> Marked:
    expected = choices.chosen(gold, rules.choices)
    return Marked(correct=expected is not None and choices.chosen(answer, rules.choices) == expected)


def _set(answer: str, gold: str, rules: Rules) -> Marked:
    given, expected = (members(text, rules.separators) for text in (answer, gold))
    return Marked(correct=given == expected, strict=_same(answer, gold), score=overlap([*given], [*expected]))


def members(text: str, separators: str = "") -> frozenset[tuple[str, ...]]:
    r"""The members of a set, between any of `separators` (none: the default ones), as words.

    The braces `{}`, `\{ \}`, `[]` or `()` around all of it are no part of them.
    """
    inside = text.strip().removeprefix("\\").removesuffix("\\}").strip(string.whitespace + "{}[]()")
    parts = re.split("[" + re.escape(separators or SEPARATORS) + "]" + r"|\band\b|\s和\s", inside)
    return frozenset(tuple(words(part)) for part in parts if part.strip())


def overlap(given: Sequence[object], expected: Sequence[object]) -> float:
    """F1, in [0, 1]: the harmonic mean of the shares of each that the other has; 1 where both are empty."""
    common = (Counter(given) & Counter(expected)).total()
    return 2 * common / (len(given) + len(expected)) if given or expected else 1.0


def _same(answer: str, gold: str) -> bool:
    return answer.strip() == gold.strip()


GRADERS: Mapping[str, Grader] = {
    each.name: each
    for each in (
        Grader("math", answers.extract, _mathematics),
        Grader("exact", statements.final, _exact, worded=True),
        Grader("text", statements.final, _text, worded=True),
        Grader("contains", statements.final, _contains, worded=True),
        Grader("f1", statements.final, _f1, "token F1", worded=True),
        Grader("regex", statements.final, _regex),
        Grader("choice", choices.extract, _choice),
        Grader("set", statements.final, _set, "F1 of the sets", worded=True),
        Grader("rubric", statements.whole, None, "the judge model's rating, 1 to 5", most=5.0),
    )
}
