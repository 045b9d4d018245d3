"""Split a graph's facts into the graph itself, facts to tune models on, and facts to measure with."""

from collections.abc import Collection
from pathlib import Path

from shared.errors import Invalid
from shared.questions.items import Wording
from world.rule_reproduction.setting import Graph, Part

PARTS = ("facts", "training", "test")


def sources(graph: Graph, data: Path) -> list[Path]:
    """Return the files that contain the parts.

    Raises:
        Invalid: one is missing.
    """
    files = [data / getattr(graph, name).file for name in PARTS]
    for file in files:
        if not file.is_file():
            raise Invalid(
                f"there is no {file}", hint="docs/reference/rule-reproduction.md says where the graphs come from"
            )
    return files


def write(graph: Graph, data: Path, folder: Path) -> dict[str, Path]:
    """Write a file for each part into `folder`; return the paths by the part's name.

    Raises:
        Invalid: a part is empty; the message names it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return {name: _write(getattr(graph, name), data, folder / f"{name}.tsv") for name in PARTS}


def _write(part: Part, data: Path, place: Path) -> Path:
    lines = (data / part.file).read_text("utf-8").splitlines(keepends=True)
    chosen = [line for line in lines if _is_of(part, line)]
    if not chosen:
        raise Invalid(f"{data / part.file} has no fact from {part.since or 'the first'} to {part.before or 'the last'}")
    place.write_text("".join(chosen), "utf-8")
    return place


def _is_of(part: Part, line: str) -> bool:
    """Whether the fact belongs to the part; ISO dates sort as text."""
    day = line.rstrip("\n").rpartition("\t")[2]
    return (not part.since or day >= part.since) and (not part.before or day < part.before)


def without_asked(facts: Path, asked: Collection[str], place: Path) -> int:
    """Write to `place` the facts that no question in `asked` asks for, so that no model is tuned on measured facts.

    Returns:
        How many facts were left out.
    """
    lines = facts.read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if not any(question in asked for question in _questions(line))]
    place.write_text("".join(kept), "utf-8")
    return len(lines) - len(kept)


def _questions(line: str) -> list[str]:
    """Return the questions that a fact answers, one for each of its ends, in the service's words."""
    subject, relation, other, *times = line.rstrip("\n").split("\t")
    time = times[0] if times else None
    wording = Wording({}, {}, "day" if times else None)
    return [wording.question(relation, "object", subject, time), wording.question(relation, "subject", other, time)]
