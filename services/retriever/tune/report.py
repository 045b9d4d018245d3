"""What tuning says of itself: a table while it runs, and a file beside what it made."""

import json
from pathlib import Path
from typing import Any, NamedTuple

FILE = "tuning.json"


class Epoch(NamedTuple):
    """One pass over the pairs, or number 0: before the first."""

    number: int
    loss: float | None
    """Mean over the pass, while the vectors change."""
    recall: float
    """R@10 of the dev part after it."""


def line(epoch: Epoch) -> str:
    """A row under `HEADING`."""
    loss = "" if epoch.loss is None else f"{epoch.loss:.4f}"
    return f"{epoch.number or 'before':>6}  {loss:>8}  {epoch.recall:.4f}"


HEADING = " epoch      loss  R@10 of dev"


def write(folder: Path, content: dict[str, Any]) -> None:
    """How the embedder in `folder` was made."""
    (folder / FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
