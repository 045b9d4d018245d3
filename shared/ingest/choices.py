"""Read the choices of a multiple-choice question, and which of them is right, as data sets write them."""

from collections.abc import Sequence
from typing import Any

from shared.ingest import fields
from shared.ingest.lines import Defect, Fields
from shared.rag.extraction import LETTERS


def read(line: Fields) -> tuple[str, ...]:
    """Read the texts of the choices A, B, C ... of a line; empty if it has no `choices` (or `options`).

    They are a list (MMLU), an object of letters (`{"A": "Bern"}`), or lists of labels and texts (ARC).

    Raises:
        Defect: they are written in another way, or are fewer than 2 or more than 26.
    """
    field = fields.find_single_name(line, fields.CHOICES)
    if field is None:
        return ()
    value = line[field]
    if isinstance(value, dict):
        value = value["text"] if isinstance(value.get("text"), list) else [value[key] for key in sorted(value)]
    if not isinstance(value, list) or not 2 <= len(value) <= len(LETTERS):
        raise Defect(f'`{field}` must be a list of 2 to 26 texts such as ["Bern", "Paris"]')
    return tuple(fields.scalar(each, field) for each in value)


def format_question(question: str, choices: Sequence[str]) -> str:
    """Append the choices to the question, each on a line with its letter."""
    return "\n".join([question, *(f"{letter}. {text}" for letter, text in zip(LETTERS, choices, strict=False))])


def find_right_letter(value: Any, field: str, choices: Sequence[str]) -> str:
    """Return the letter of the right choice, which may be given as a letter, its text, a label from "1" (ARC), or, for
    a number in the upload, its position from 0 (MMLU).

    Raises:
        Defect: it names none of the choices, or may be read in two ways.
    """
    text = fields.scalar(value, field)
    letters = LETTERS[: len(choices) or len(LETTERS)]
    is_place = isinstance(value, int) and value < len(letters)
    readings = {
        *([text.upper()] if len(text) == 1 and text.upper() in letters else []),
        *(letter for letter, choice in zip(letters, choices, strict=False) if choice == text),
        *([letters[value]] if is_place and choices else []),
    }
    if not readings and isinstance(value, str) and text.isdecimal() and 0 < int(text) <= len(choices):
        readings = {letters[int(text) - 1]}
    if len(readings) != 1:
        ways = "may be a place or a text" if readings else "names none of the choices"
        raise Defect(f"`{field}` is {text!r}, which {ways}; write the letter of the correct choice")
    return readings.pop()
