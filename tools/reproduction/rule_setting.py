"""The setting of the reproduction on knowledge graphs, and the parts of a graph."""

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from mathrag.errors import Invalid
from shared.calls import Mining
from shared.params import Params
from shared.questions.items import Wording
from shared.storage.configurations import merge

SETTINGS = Path(__file__).with_name("rules.yaml")
MEASURES = {
    "answer@1": "R@1", "answer@5": "R@5", "answer@10": "R@10", "accuracy": "exact match", "score": "token F1",
}  # fmt: skip
"""Measures of every arm, by their names in comparisons, with their names on the page."""

Which = Literal["shipped", "tuned"]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"since": "from"}):
    """Facts of a TSV file, one a line, with a date at the end if the graph has dates."""

    file: str
    """Path relative to the data's folder."""
    since: str = ""
    """First day of the facts to take."""
    before: str = ""
    """Day before which the facts to take lie."""


class Graph(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One graph with the questions about it."""

    title: str
    facts: Part
    """Facts of the graph itself, which is searched and mined."""
    training: Part
    """Held-out facts whose questions models are tuned on."""
    test: Part
    """Held-out facts that the measured questions ask for."""
    mining: Mining
    """The miner and its limits."""
    params: dict[str, Any] = {}
    """Parameters of every job about it, merged over those of all jobs."""
    unanswered: bool = False
    """Whether to measure only questions that no fact of the graph answers."""


class Arm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One system to measure: a pipeline with parameters and models."""

    name: str
    label: str
    """Label in tables and figures."""
    pipeline: str
    params: dict[str, Any] = {}
    """Parameters merged over those of all jobs."""
    embeddings: Which = "shipped"
    generator: Which = "shipped"


class Tuning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of tuning, which is done for each graph alone."""

    questions: Count
    """Upper bound of the training questions of a graph."""
    examples: Count
    """Number of these, with a rule that leads to an answer, for the generator."""
    retriever: dict[str, Any] = {}
    """Options of `python -m tools.embeddings`."""
    generator: dict[str, Any] = {}
    """Options of `python -m tools.world.lora`."""


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of the measurement."""

    questions: Count
    """Upper bound of the measured questions of each graph."""
    tuning: Tuning
    params: dict[str, Any]
    """Parameters of all jobs."""
    baselines: tuple[str, ...]
    """Arms that all others are compared with."""
    arms: tuple[Arm, ...]
    graphs: dict[str, Graph]

    def __post_init__(self) -> None:
        """Raise ValueError for two arms of one name, or baselines that are not arms."""
        names = [arm.name for arm in self.arms]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"`arms`: {min(twice)!r} is defined twice: rename one")
        if missing := set(self.baselines) - set(names):
            raise ValueError(f"`baselines`: {min(missing)!r} is not an arm: use one of {', '.join(names)}")

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def params_of(self, arm: Arm, graph: Graph) -> Params:
        """Merge the arm's parameters with those of all jobs and of the graph.

        Raises:
            msgspec.ValidationError: the parameter does not exist, or does not accept the value.
        """
        return msgspec.convert(merge(self.common(graph), arm.params), Params)

    def common(self, graph: Graph) -> dict[str, Any]:
        return merge(self.params, graph.params)


def read_setting(file: Path = SETTINGS) -> Setting:
    """Read the committed settings.

    Raises:
        Invalid: the file holds unknown settings.
    """
    try:
        return msgspec.yaml.decode(file.read_bytes(), type=Setting)
    except msgspec.MsgspecError as error:
        raise Invalid(f"{file.name}: {error}") from error


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
                f"there is no {file}", hint="docs/reference/rule-reproduction.md lists the sources of the graphs"
            )
    return files


def write(graph: Graph, data: Path, folder: Path) -> dict[str, Path]:
    """Write a file for each part into `folder`; return the paths by the part's name.

    Raises:
        Invalid: a part is empty; the message names it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[str, Path] = {}
    for name in PARTS:
        part = getattr(graph, name)
        place = folder / f"{name}.tsv"
        lines = (data / part.file).read_text("utf-8").splitlines(keepends=True)
        days = [line.rstrip("\n").rpartition("\t")[2] for line in lines]
        # ISO dates sort as text.
        chosen = [
            line
            for line, day in zip(lines, days, strict=True)
            if (not part.since or day >= part.since) and (not part.before or day < part.before)
        ]
        if not chosen:
            ends = f"from {part.since or 'the first'} to {part.before or 'the last'}"
            raise Invalid(f"{data / part.file} has no fact {ends}")
        place.write_text("".join(chosen), "utf-8")
        found[name] = place
    return found


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
