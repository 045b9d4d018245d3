"""What the product shows to others, recorded, so that a change of it is seen in the change that makes it.

RECORD=1 make test T=tests/unit/test_golden.py     records anew; look at `git diff tests/golden` before you commit
"""

import difflib
import os
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
SHOWN_LINES = 60


def compare(name: str, text: str) -> None:
    """Fail with a short difference unless the file `name` of this folder has this text; with RECORD=1, write it."""
    file = FOLDER / name
    if os.environ.get("RECORD"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, "utf-8")
    recorded = file.read_text("utf-8") if file.exists() else ""
    if text != recorded:
        lines = list(
            difflib.unified_diff(recorded.splitlines(), text.splitlines(), "recorded", "now", n=1, lineterm="")
        )
        shown = "\n".join(line[:300] for line in lines[:SHOWN_LINES])
        pytest.fail(f"{name} has changed; if that is meant, record it with RECORD=1\n{shown}", pytrace=False)
