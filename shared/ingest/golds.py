"""The gold answers of a line, as the dataset's grader needs them."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from shared.ingest import choices, fields
from shared.ingest.lines import Defect
from shared.mathtext.grading import equal_strict
from shared.rag.graders import InvalidGold, check_gold

_GSM8K_MARK = "####"


class Reading(NamedTuple):
    """What the values of a line mean."""

    grader: str | None
    """None: the dataset declares none."""
    choices: tuple[str, ...] = ()

    def golds(self, value: Any, field: str) -> tuple[str | None, tuple[str, ...]]:
        """The gold answer and the others, in the order of the line; a list for `set` is one answer of many members.

        Raises:
            Defect: an answer that the grader cannot use.
        """
        found = [self._one(each, field) for each in (value if isinstance(value, list) else [value])]
        answers = [each for each in found if each is not None]
        if self.grader == "set" and answers:
            answers = ["\n".join(answers)]
        for each in answers:
            _check(self.grader, each, field)
        return (answers[0], self._others(answers)) if answers else (None, ())

    def _one(self, value: Any, field: str) -> str | None:
        if self.grader == "choice":
            return choices.right(value, field, self.choices)
        text = fields.scalar(value, field)
        return text if self.grader not in (None, "math") else _after_mark(text)

    def _others(self, answers: Sequence[str]) -> tuple[str, ...]:
        """Each once; for mathematics without those that only are written otherwise."""
        first, *rest = dict.fromkeys(answers)
        mathematics = self.grader in (None, "math")
        return tuple(other for other in rest if not (mathematics and equal_strict(other, first)))


def _check(grader: str | None, gold: str, field: str) -> None:
    try:
        check_gold(grader or "math", gold)
    except InvalidGold as error:
        raise Defect(f"`{field}`: {error}") from error


def _after_mark(answer: str) -> str | None:
    """GSM8K ends its steps with `#### 1,000`; the official reader drops the commas. Nothing after it is no answer."""
    if _GSM8K_MARK not in answer:
        return answer
    return answer.rpartition(_GSM8K_MARK)[2].strip().replace(",", "") or None
