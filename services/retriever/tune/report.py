"""Report a tuning: a table while it runs, and a file beside the result."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from services.retriever.tune.options import TuningOptions
from services.retriever.tune.recall import Recall

FILE = "tuning.json"
HEADING = " epoch      loss  R@10  of the rule"


class Epoch(NamedTuple):
    """One pass over the pairs; number 0 is the state before the first."""

    number: int
    loss: float | None
    """Mean loss over the pass, while the vectors change."""
    recall: Recall
    """Recall on the dev part after the pass."""


def format_epoch(epoch: Epoch) -> str:
    """Format a row under `HEADING`."""
    loss = "" if epoch.loss is None else f"{epoch.loss:.4f}"
    return f"{epoch.number or 'before':>6}  {loss:>8}  {format_recall(epoch.recall)}"


def format_recall(recall: Recall) -> str:
    """Format both figures as under `HEADING`."""
    return f"{recall.question:.3f}  {recall.rule:.3f}"


def make_report(pairs: str, options: TuningOptions, epochs: Sequence[Epoch]) -> dict[str, Any]:
    """Describe how an embedder was made; `pairs` is the SHA-256 of their file."""
    passed = [{**each._asdict(), "recall": each.recall._asdict()} for each in epochs]
    return {"pairs": pairs, "options": options._asdict(), "epochs": passed}


def write(folder: Path, content: dict[str, Any]) -> None:
    """Write how the embedder in `folder` was made."""
    (folder / FILE).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
