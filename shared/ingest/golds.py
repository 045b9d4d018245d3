"""Read the gold answers of a line in the form that the dataset's grader needs."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from shared.calls import MATHEMATICAL
from shared.ingest import choices, fields
from shared.ingest.lines import Defect
from shared.mathtext.grading import equal_strict
from shared.rag.graders import InvalidGold, check_gold

_GSM8K_MARK = "####"


class GoldReader(NamedTuple):
    """Reads gold answers for one grader."""

    grader: str | None
    """Name of the grader; None if the dataset declares none."""
    choices: tuple[str, ...] = ()

    def golds(self, value: Any, field: str) -> tuple[str | None, tuple[str, ...]]:
        """Return the gold answer and the others, in the order of the line; for `set`, a list is one answer with many
        members.

        Raises:
            Defect: an answer that the grader cannot use.
        """
        found = [self._one(each, field) for each in (value if isinstance(value, list) else [value])]
        answers = [each for each in found if each is not None]
        if self.grader == "set" and answers:
            answers = ["\n".join(answers)]
        for each in answers:
            _check(self.grader, each, field)
        return (answers[0], self._list_others(answers)) if answers else (None, ())

    def _one(self, value: Any, field: str) -> str | None:
        if self.grader == "choice":
            return choices.find_right_letter(value, field, self.choices)
        text = fields.scalar(value, field)
        return text if self.grader not in (None, *MATHEMATICAL) else _cut_after_mark(text)

    def _list_others(self, answers: Sequence[str]) -> tuple[str, ...]:
        """Return the other answers without repetitions; for mathematics, also without other notations of the same
        answer."""
        first, *rest = dict.fromkeys(answers)
        mathematics = self.grader in (None, *MATHEMATICAL)
        return tuple(other for other in rest if not (mathematics and equal_strict(other, first)))


def _check(grader: str | None, gold: str, field: str) -> None:
    try:
        check_gold(grader or "math", gold)
    except InvalidGold as error:
        raise Defect(f"`{field}`: {error}") from error


def _cut_after_mark(answer: str) -> str | None:
    """Return what follows GSM8K's `#### 1,000`, without commas, as the official reader does; None if nothing
    follows."""
    if _GSM8K_MARK not in answer:
        return answer
    return answer.rpartition(_GSM8K_MARK)[2].strip().replace(",", "") or None
