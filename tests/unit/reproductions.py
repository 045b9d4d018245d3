"""Problems as MATH has them."""

import json
from pathlib import Path
from typing import Any


def problem(number: int, **fields: Any) -> dict[str, Any]:
    """As MATH has it; every other one is geometry."""
    return {
        "problem": f"What is {number} + {number}?", "solution": f"It is \\boxed{{{2 * number}}}.",
        "level": "Level 1", "type": "Geometry" if number % 2 else "Algebra", **fields,
    }  # fmt: skip


def write(file: Path, numbers: range, **fields: Any) -> Path:
    """A JSONL file of these problems."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(problem(number, **fields)) + "\n" for number in numbers))
    return file
