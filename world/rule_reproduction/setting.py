"""What is measured: graphs, arms, parameters, as ``settings.yaml`` says."""

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from shared.contracts.mining import Mining
from shared.contracts.params import Params
from shared.errors import Invalid
from shared.storage.configurations import merged

FILE = Path(__file__).with_name("settings.yaml")
MEASURES = {
    "answer@1": "R@1", "answer@5": "R@5", "answer@10": "R@10", "accuracy": "exact match", "score": "token F1",
}  # fmt: skip
"""What every arm is measured by, as comparisons call it, and as the page does."""

Which = Literal["shipped", "tuned"]
Count = Annotated[int, msgspec.Meta(ge=1)]


class Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"since": "from"}):
    """Facts of a file: a fact a line, between tabs, with a date at the end where there are dates."""

    file: str
    """Below the folder of the data."""
    since: str = ""
    """Only facts of this day or later."""
    before: str = ""
    """Only earlier facts."""


class Graph(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One graph, and what is asked about it."""

    title: str
    facts: Part
    """The graph itself, which is searched and mined."""
    training: Part
    """Held-out facts that models are tuned on questions about."""
    test: Part
    """Held-out facts that the measured questions ask for."""
    mining: Mining
    """The miner and its limits."""
    params: dict[str, Any] = {}
    """Of every job about it, on top of those of every job."""
    unanswered: bool = False
    """Whether only questions are measured that no fact of the graph answers."""


class Arm(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One way of answering."""

    name: str
    label: str
    """In tables and figures."""
    pipeline: str
    params: dict[str, Any] = {}
    """On top of those of every job."""
    embeddings: Which = "shipped"
    generator: Which = "shipped"


class Tuning(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How models are tuned, on each graph alone."""

    questions: Count
    """As many as a graph's held-out facts give, at most."""
    examples: Count
    """So many of these, that a rule leads to, for the generator."""
    retriever: dict[str, Any] = {}
    """Options of `python -m services.retriever.tune`."""
    generator: dict[str, Any] = {}
    """Options of `python -m world.lora`."""


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of it."""

    questions: Count
    """Of each graph, or as many as its facts give."""
    tuning: Tuning
    params: dict[str, Any]
    """Of every job."""
    baselines: tuple[str, ...]
    """Arms that all others are compared with."""
    arms: tuple[Arm, ...]
    graphs: dict[str, Graph]

    def __post_init__(self) -> None:
        """Raise ValueError for arms that cannot be told apart, or baselines that are none of them."""
        names = [arm.name for arm in self.arms]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"`arms`: {min(twice)!r} is there twice")
        if missing := set(self.baselines) - set(names):
            raise ValueError(f"`baselines`: {min(missing)!r} is no arm; there are {', '.join(names)}")

    def arm(self, name: str) -> Arm:
        """The arm of this name."""
        return next(arm for arm in self.arms if arm.name == name)

    def params_of(self, arm: Arm, graph: Graph) -> Params:
        """Its parameters, all of them.

        Raises:
            msgspec.ValidationError: there is no such parameter, or not with such a value.
        """
        return msgspec.convert(merged(self.common(graph), arm.params), Params)

    def common(self, graph: Graph) -> dict[str, Any]:
        """Parameters of all jobs about a graph."""
        return merged(self.params, graph.params)


def read(file: Path = FILE) -> Setting:
    """The committed settings.

    Raises:
        Invalid: the file holds what no settings have.
    """
    try:
        return msgspec.yaml.decode(file.read_bytes(), type=Setting)
    except msgspec.MsgspecError as error:
        raise Invalid(f"{file.name}: {error}") from error
