"""Training and test samples of the rule generator: the served templates around random scenes."""

from dataclasses import dataclass
from random import Random
from typing import Literal

from shared.rag.prompts import Value, render, template
from shared.replies import Document
from world.relations import names, phrasings
from world.relations.drawing import Kind, Size, ask_again, draw_scene
from world.relations.names import Vocabulary
from world.relations.phrasings import Phrasings
from world.relations.scene import Finding, Rule, Scene, find_answer
from world.samples import Sample

Template = Literal["rulerag", "rulerag-cot", "cot"]


@dataclass(frozen=True)
class Split:
    """What the names, phrases and questions of a sample are made of."""

    vocabulary: Vocabulary
    phrasings: Phrasings


@dataclass(frozen=True)
class Level:
    """How large the scenes of a training stage are, and how often each kind and template is drawn."""

    size: Size
    kinds: dict[Kind, int]
    templates: dict[Template, int]
    further: int = 0  # questions after the first, about the same documents and rules


TRAIN = Split(names.TRAIN, phrasings.TRAIN)
TEST = Split(names.TEST, phrasings.TEST)
#: Short scenes with many numbered names first, then everything.
LEVELS: dict[str, Level] = {
    "short": Level(
        Size(3, 2, dated=0.0, numbered=0.7),
        {"same": 8, "exchanged": 8, "chained": 1, "several": 2, "direct": 2, "irrelevant": 1, "plain": 5},
        {"rulerag": 6, "rulerag-cot": 3},
        further=3,
    ),
    "all": Level(
        Size(5, 3, dated=0.4, numbered=0.45),
        {"same": 8, "exchanged": 8, "chained": 3, "several": 6, "direct": 3, "irrelevant": 2, "plain": 6},
        {"rulerag": 6, "rulerag-cot": 3},
        further=3,
    ),
}


def level_sample(rng: Random, split: Split, level: Level) -> Sample:
    """A sample of a training stage; scenes without rules are asked under the template for plain retrieval."""
    (kind,) = rng.choices(list(level.kinds), weights=list(level.kinds.values()))
    (name,) = rng.choices(list(level.templates), weights=list(level.templates.values()))
    return kind_sample(rng, split, kind, name, level.size, level.further)


def kind_sample(rng: Random, split: Split, kind: Kind, name: Template, size: Size, further: int = 0) -> Sample:
    """A sample of one kind."""
    scene, time = draw_scene(rng, split.vocabulary, kind, size)
    used: Template = "cot" if kind == "plain" else name
    found = find_answer(scene)
    more = tuple(
        (f"Question: {_question(rng, split, other, time)}", reply(used, find_answer(other)))
        for other in (ask_again(rng, scene) for _ in range(further if used != "rulerag-cot" else further // 3))
    )
    return Sample(prompt(used, scene, _question(rng, split, scene, time)), reply(used, found), found.answer, more)


def _question(rng: Random, split: Split, scene: Scene, time: str | None) -> str:
    return phrasings.ask(rng, split.phrasings, scene.entity, scene.phrase, time, asks_object=scene.asks_object)


def prompt(name: Template, scene: Scene, question: str) -> str:
    """The served template with a scene's documents and rules; the one for plain retrieval leaves the rules out."""
    slots: dict[str, Value] = {
        "question": question,
        "context": [Document(problem="", text=str(fact)) for fact in scene.facts],
    }
    if scene.rules and name != "cot":
        slots["rules"] = rules_text(scene.rules)
    return render(template(name), slots)


def rules_text(rules: tuple[Rule, ...]) -> str:
    """The slot `rules`: a heading, a rule a line, an empty line."""
    return "Rules:\n" + "".join(f"{rule}\n" for rule in rules) + "\n"


def reply(name: Template, found: Finding) -> str:
    """The boxed answer; under `rulerag-cot` the rule and the documents that it follows stand before it."""
    box = f"\\boxed{{{found.answer}}}"
    if name != "rulerag-cot":
        return box
    return "\n".join([*([str(found.rule)] if found.rule else []), *map(str, found.facts), box])
