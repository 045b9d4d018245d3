"""What tuning says of itself: a table while it runs, and a file beside what it made."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from services.retriever.tune.options import Options
from services.retriever.tune.recall import Recall

FILE = "tuning.json"
HEADING = " epoch      loss  R@10  of the rule"


class Epoch(NamedTuple):
    """One pass over the pairs, or number 0: before the first."""

    number: int
    loss: float | None
    """Mean over the pass, while the vectors change."""
    recall: Recall
    """Of the dev part after it."""


def line(epoch: Epoch) -> str:
    """A row under `HEADING`."""
    loss = "" if epoch.loss is None else f"{epoch.loss:.4f}"
    return f"{epoch.number or 'before':>6}  {loss:>8}  {shown(epoch.recall)}"


def shown(recall: Recall) -> str:
    """Both figures, as they stand under `HEADING`."""
    return f"{recall.question:.3f}  {recall.rule:.3f}"


def told(pairs: str, options: Options, epochs: Sequence[Epoch]) -> dict[str, Any]:
    """How an embedder is made; `pairs` is the SHA-256 of their file."""
    passed = [{**each._asdict(), "recall": each.recall._asdict()} for each in epochs]
    return {"pairs": pairs, "options": options._asdict(), "epochs": passed}


def write(folder: Path, content: dict[str, Any]) -> None:
    """How the embedder in `folder` was made."""
    (folder / FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
