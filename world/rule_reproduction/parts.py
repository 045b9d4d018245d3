"""The parts of a graph's facts: the graph itself, what models are tuned on, and what is asked for the measurement."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shared.errors import Invalid
from world.rule_reproduction.setting import Graph, Part

PARTS = ("facts", "training", "test")


def sources(graph: Graph, data: Path) -> list[Path]:
    """The files that the parts are taken from.

    Raises:
        Invalid: one is missing.
    """
    files = [data / getattr(graph, name).file for name in PARTS]
    for file in files:
        if not file.is_file():
            raise Invalid(f"there is no {file}", hint="docs/rule-reproduction.md says where the graphs come from")
    return files


def write(graph: Graph, data: Path, folder: Path) -> dict[str, Path]:
    """Write a file a part into `folder`; their places by the part's name.

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
    """Dates are compared as text, which is their order."""
    day = line.rstrip("\n").rpartition("\t")[2]
    return (not part.since or day >= part.since) and (not part.before or day < part.before)


def without_asked(facts: Path, items: Iterable[Mapping[str, Any]], place: Path) -> int:
    """Write the facts that no item asks for to `place`, so that no model is tuned on a question of the measurement.

    Args:
        items: as the service lists them; what they ask stands in their `query`.

    Returns:
        How many facts were left out.
    """
    asked = {_key(item["query"]) for item in items}
    lines = facts.read_text("utf-8").splitlines(keepends=True)
    kept = [line for line in lines if asked.isdisjoint(_asks(line))]
    place.write_text("".join(kept), "utf-8")
    return len(lines) - len(kept)


def _key(query: Mapping[str, Any]) -> tuple[str, str, str, str]:
    return query["entity"], query["relation"], query.get("side", "object"), query.get("time") or ""


def _asks(line: str) -> list[tuple[str, str, str, str]]:
    """The questions that a fact may be asked for by: for its object and for its subject."""
    subject, relation, other, *times = line.rstrip("\n").split("\t")
    time = times[0] if times else ""
    return [(subject, relation, "object", time), (other, relation, "subject", time)]
