"""Extract the answer of a text without mathematics: a box, else what follows "the answer is", else the whole text."""

import re

from shared.contracts.samples import Extraction
from shared.mathtext import answers

_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{(?P<inside>[^{}]*)\}")
# Up to the end of the line: an answer with commas or points in it stays whole.
_STATED = re.compile(
    r"(?:\banswer\s*(?:is|:)|\banswers\s*(?:are|:)|答案(?:是|为|：|:))[\s:：]*(?P<answer>[^\n]*\S)", re.IGNORECASE
)
_BOLD = re.compile(r"\*\*(.+?)\*\*")
_QUOTES = "`\"'“”‘’"


def extract_final(text: str) -> tuple[str | None, Extraction]:
    r"""Return the last `\boxed{}`, else what follows the last "Answer:" or "the answer is".

    A text with neither is an answer as a whole. Quotes around an answer and Markdown's bold marks are left out.

    Returns:
        (answer, OK), or (None, MISSING) where nothing is left.
    """
    boxed, extraction = answers.extract(text)
    if boxed is not None:
        return _TEXT.sub(lambda match: match["inside"], boxed).strip(), extraction
    stated = [match["answer"] for match in _STATED.finditer(text)]
    answer = _BOLD.sub(r"\1", stated[-1] if stated else text).strip().strip(_QUOTES).strip()
    return (answer, Extraction.OK) if answer else (None, Extraction.MISSING)


def take_whole(text: str) -> tuple[str | None, Extraction]:
    """Return the whole text, which is what a rubric rates."""
    answer = text.strip()
    return (answer, Extraction.OK) if answer else (None, Extraction.MISSING)
