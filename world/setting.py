"""Knobs of the problem world: what kinds of documents there are, how they are worded, and what else a search finds.

The files in ``world/settings`` were committed before anything was measured with them.
"""

from pathlib import Path
from random import Random
from typing import Annotated

import msgspec

from shared.errors import Invalid, NotFound
from world.items import PAIRS
from world.problems import GRADES, KINDS, Kind, Rule, random_rule
from world.wording import ENGLISH, WORDINGS, Language, Style, Wording

SETTINGS = Path(__file__).parent / "settings"

Count = Annotated[int, msgspec.Meta(ge=0, le=20)]
Level = Annotated[int, msgspec.Meta(ge=1, le=5)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Weight = Annotated[float, msgspec.Meta(ge=0)]


class DocumentCounts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The number of documents of each kind."""

    full: Count = 0
    steps: Count = 0
    rule: Count = 0
    wrong: Count = 0
    answer: Count = 0


class Weights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The relative probability of each kind."""

    full: Weight = 0
    steps: Weight = 0
    rule: Weight = 0
    wrong: Weight = 0
    answer: Weight = 0


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Defines a world. The defaults are the demo's, whose corpora must stay the same byte for byte."""

    about: str = ""
    """The setting's purpose, in a sentence."""
    operators: Annotated[int, msgspec.Meta(ge=1, le=48)] = 40
    """Made-up operators, each with one rule; 48 names were kept out of training."""
    items: Annotated[int, msgspec.Meta(ge=1)] = 100
    """Questions, shared unevenly among the operators."""
    documents: DocumentCounts = DocumentCounts(full=1, steps=1, rule=1, wrong=2, answer=2)
    """Documents of every operator, by kind. `full`, `rule` and `steps` are of use; `wrong` and `answer` are bad."""
    most_more: Count = 2
    """Upper bound of an operator's further documents; the number is drawn evenly from 0 on."""
    more: Weights = Weights(steps=1, wrong=1, answer=1)
    """Kinds of the further documents."""
    near_words: Count = 0
    """Distractors of every question, in its phrasing and with its digits: swapped, or one of them where that is asked.
    None is a near-duplicate of a question."""
    near_meaning: Count = 0
    """Distractors of every question, in other words of the same sense and with other digits."""
    distractors: Weights = Weights(wrong=1, answer=1)
    """Kinds of the distractors."""
    unrelated: Count = 0
    """Full documents for every question, in its phrasing and with its digits, about operators that nobody asks for."""
    agreement: Annotated[float, msgspec.Meta(ge=-1, le=1)] | None = None
    """Of form and logic. A useful document is formal with probability (1 + agreement) / 2, a bad one with
    (1 - agreement) / 2: at 0 the form tells nothing. Without: as the demo's, formal but for bare answers."""
    levels: dict[Level, Weight] = {}
    """How likely rules of each level of difficulty are (`world.problems.Rule.level`); empty: as they occur."""
    chinese: Share = 0.0
    """Share of the operators whose questions and documents are Chinese."""

    def __post_init__(self) -> None:
        """Raise ValueError for settings that no corpus can have."""
        if not self.documents.full + self.documents.steps + self.documents.rule:
            raise ValueError("`documents` has no useful kind: give one of full, rule, steps")
        if self.chinese and self.agreement is None:
            raise ValueError("`chinese` is set without `agreement`: set it, too, as the demo's wording is English")
        for name, weights in (("more", self.more), ("distractors", self.distractors)):
            if not any(msgspec.structs.astuple(weights)):
                raise ValueError(f"`{name}`: one weight has to count")
        if self.levels and not any(self.levels.values()):
            raise ValueError("`levels`: one weight has to count")
        if self.items > self.operators * self.most_items:
            raise ValueError(f"{self.operators} operators allow {self.operators * self.most_items} items at most")

    @property
    def most_items(self) -> int:
        """Return the most questions of an operator; its texts all differ in digits, of which there are 100 pairs."""
        taken: int = sum(msgspec.structs.astuple(self.documents)) + self.most_more
        return (len(PAIRS) - taken) // (1 + self.near_words + self.near_meaning)

    def kinds(self, rng: Random) -> list[Kind]:
        """Draw the kinds of one operator's own documents."""
        own = [kind for kind in KINDS for _ in range(getattr(self.documents, kind))]
        return own + draw_kinds(rng, self.more, rng.randint(0, self.most_more))

    def rule(self, rng: Random) -> Rule:
        """Draw an operator's rule."""
        if not self.levels:
            return random_rule(rng)
        (level,) = rng.choices(list(self.levels), list(self.levels.values()))
        while (rule := random_rule(rng)).level != level:
            pass
        return rule

    def draw_wording(self, rng: Random, kind: Kind, language: Language) -> Wording:
        """Draw the wording of a document of this kind."""
        if self.agreement is None:
            return ENGLISH
        sign = 1 if useful(kind) else -1
        style: Style = "formal" if rng.random() < (1 + sign * self.agreement) / 2 else "plain"
        return WORDINGS[language, style]


def draw_kinds(rng: Random, weights: Weights, count: int = 1) -> list[Kind]:
    """Draw `count` kinds, each independently."""
    return rng.choices(KINDS, msgspec.structs.astuple(weights), k=count)


def useful(kind: Kind) -> bool:
    """Whether a document of this kind lets its operator's questions be answered."""
    return GRADES[kind] >= GRADES["rule"]


def names(folder: Path = SETTINGS) -> list[str]:
    """List the names of the committed settings."""
    return sorted(file.stem for file in folder.glob("*.yaml"))


def read(name: str, folder: Path = SETTINGS) -> Setting:
    """Read a committed setting.

    Raises:
        NotFound: there is none of this name.
        Invalid: it holds what no setting has.
    """
    file = folder / f"{name}.yaml"
    if not file.is_file():
        raise NotFound(f"no setting of the world is called {name!r}", hint=f"use one of {', '.join(names(folder))}")
    try:
        return msgspec.yaml.decode(file.read_bytes(), type=Setting)
    except msgspec.MsgspecError as error:
        raise Invalid(f"{file.name}: {error}") from error


def change_setting(setting: Setting, **knobs: object) -> Setting:
    """Return the setting with other knobs, validated again.

    Raises:
        ValueError: such a world cannot be written.
    """
    return msgspec.convert({**msgspec.structs.asdict(setting), **knobs}, Setting)
