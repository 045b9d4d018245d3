"""Facts, rules, a question, and the answer that the rule generator has to learn."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.rules.graph import sentence


@dataclass(frozen=True)
class Fact:
    """Subject, phrase of the relation, object, and maybe a date."""

    subject: str
    phrase: str
    object: str
    time: str | None = None

    def __str__(self) -> str:
        return sentence(self.subject, self.phrase, self.object, self.time)


@dataclass(frozen=True)
class Atom:
    """A relation between two variables, named by their numbers."""

    first: int
    phrase: str
    second: int

    def __str__(self) -> str:
        return f"[Entity{self.first}, {self.phrase}, Entity{self.second}]"


@dataclass(frozen=True)
class Rule:
    """Atoms that lead to `[Entity1, head, Entity2]`."""

    body: tuple[Atom, ...]
    head: str

    def __str__(self) -> str:
        """As `shared.rag.guidance` writes it."""
        return f"{' and '.join(map(str, self.body))} leads to {Atom(1, self.head, 2)}"


@dataclass(frozen=True)
class Scene:
    """What a prompt shows: a question for the object or the subject of `phrase`, rules best first, documents."""

    entity: str
    phrase: str
    asks_object: bool
    rules: tuple[Rule, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Finding:
    """The answer, and what it follows from; no rule where a document answers by itself."""

    answer: str
    facts: tuple[Fact, ...]
    rule: Rule | None = None


def find_answer(scene: Scene) -> Finding:
    """The fact in question, else the first rule that matches, else the first document that names the entity."""
    asked = Rule((Atom(1, scene.phrase, 2),), scene.phrase)
    for rule in (asked, *scene.rules):
        found = _follow(scene, rule)
        if found:
            return Finding(found.answer, found.facts, None if rule is asked else rule)
    return _fallback(scene)


def _follow(scene: Scene, rule: Rule) -> Finding | None:
    """The first documents that match a rule's body, beginning at the variable that the question names."""
    known, wanted = (1, 2) if scene.asks_object else (2, 1)
    return _extend(scene.facts, rule.body, {known: scene.entity}, wanted, ())


def _extend(
    facts: Sequence[Fact], body: tuple[Atom, ...], bound: dict[int, str], wanted: int, used: tuple[Fact, ...]
) -> Finding | None:
    if not body:
        return Finding(bound[wanted], used)
    atom = next(atom for atom in body if atom.first in bound or atom.second in bound)
    rest = tuple(other for other in body if other is not atom)
    for fact in facts:
        values = {**bound, atom.first: fact.subject, atom.second: fact.object}
        if fact.phrase == atom.phrase and all(values[variable] == name for variable, name in bound.items()):
            found = _extend(facts, rest, values, wanted, (*used, fact))
            if found:
                return found
    return None


def _fallback(scene: Scene) -> Finding:
    for fact in scene.facts:
        if scene.entity in (fact.subject, fact.object):
            return Finding(fact.object if fact.subject == scene.entity else fact.subject, (fact,))
    first = scene.facts[0]
    return Finding(first.object if scene.asks_object else first.subject, (first,))
