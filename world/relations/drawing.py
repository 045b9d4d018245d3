"""Random scenes of a kind."""

from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from world.relations import names
from world.relations.names import Vocabulary
from world.relations.scene import Atom, Fact, Rule, Scene

Kind = Literal["same", "exchanged", "chained", "several", "direct", "irrelevant", "plain"]


@dataclass(frozen=True)
class Size:
    """How much a scene may show."""

    documents: int
    rules: int
    dated: float  # share of the scenes with dates
    numbered: float  # share of the scenes with numbered entities, and of those with numbered relations


@dataclass(frozen=True)
class Cast:
    """Names of a scene: the entity in question and others, the relation in question and others."""

    entity: str
    others: list[str]
    phrase: str
    phrases: list[str]


def draw_cast(rng: Random, vocabulary: Vocabulary, documents: int, numbered: float) -> Cast:
    """Names for so many documents."""
    entity, *others = names.entities(rng, vocabulary, documents + 3, numbered)
    phrase, *phrases = names.relations(rng, vocabulary, 5, numbered)
    return Cast(entity, others, phrase, phrases)


def draw_date(rng: Random) -> str:
    """Any day but those of 2014, the year of ICEWS14."""
    year = rng.choice([year for year in range(1990, 2032) if year != 2014])
    return f"{year}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def draw_scene(rng: Random, vocabulary: Vocabulary, kind: Kind, size: Size) -> tuple[Scene, str | None]:
    """A scene and the date of its question."""
    count = size.documents if rng.random() < 0.5 else rng.randint(1, size.documents)
    dated, asks_object = rng.random() < size.dated, rng.random() < 0.5
    cast = draw_cast(rng, vocabulary, count, size.numbered)
    rules = _draw_rules(rng, cast, kind, size)
    facts = _core(rng, cast, kind, rules, asks_object=asks_object)
    while len(facts) < count:
        facts.append(_distractor(rng, cast, rules))
    rng.shuffle(facts)
    shown = [replace(fact, time=draw_date(rng)) for fact in facts] if dated else facts
    return Scene(cast.entity, cast.phrase, asks_object, tuple(rules), tuple(shown)), draw_date(rng) if dated else None


def _draw_rules(rng: Random, cast: Cast, kind: Kind, size: Size) -> list[Rule]:
    """The last of `cast.phrases` is in no rule, and the only one in facts of the kinds without a match."""
    if kind == "plain":
        return []
    most = size.rules
    count = rng.randint(min(2, most), most) if kind == "several" else rng.choice(range(1, most + 1))
    phrases = rng.sample(cast.phrases[:-1], min(count, len(cast.phrases) - 1))
    rules = [_one_atom(phrase, cast.phrase, exchanged=rng.random() < 0.5) for phrase in phrases]
    if kind in ("same", "exchanged"):
        rules[0] = _one_atom(phrases[0], cast.phrase, exchanged=kind == "exchanged")
    if kind == "chained" or (kind in ("several", "irrelevant") and rng.random() < 0.2):
        rules[0] = _two_atoms(rng, phrases[0], cast.phrase, rng.choice(cast.phrases[:-1]))
    if kind in ("same", "exchanged", "chained"):
        rng.shuffle(rules)
    return rules


def _one_atom(phrase: str, head: str, *, exchanged: bool) -> Rule:
    return Rule((Atom(2, phrase, 1) if exchanged else Atom(1, phrase, 2),), head)


def _two_atoms(rng: Random, first: str, head: str, second: str) -> Rule:
    ends = [(1, first, 3), (3, second, 2)]
    return Rule(tuple(Atom(*(end if rng.random() < 0.6 else end[::-1])) for end in ends), head)


def _core(rng: Random, cast: Cast, kind: Kind, rules: list[Rule], *, asks_object: bool) -> list[Fact]:
    """The documents that carry the kind."""
    if kind == "direct" or (kind == "plain" and rng.random() < 0.5):
        return [_match(rng, cast, _one_atom(cast.phrase, cast.phrase, exchanged=False), asks_object=asks_object)[0]]
    if kind in ("irrelevant", "plain"):
        return [_about_entity(rng, cast, cast.phrases[-1])]
    chosen = rules if kind != "several" else [rng.choice(rules)]
    wanted = [rule for rule in chosen if (len(rule.body) == 2) == (kind == "chained")] or chosen
    return _match(rng, cast, wanted[0] if kind == "chained" else rng.choice(wanted), asks_object=asks_object)


def _match(rng: Random, cast: Cast, rule: Rule, *, asks_object: bool) -> list[Fact]:
    """Facts that match a rule's body with the entity in question at the end that the question names."""
    values = dict(zip((3, 1, 2), rng.sample(cast.others, 3), strict=True))
    values[1 if asks_object else 2] = cast.entity
    return [Fact(values[atom.first], atom.phrase, values[atom.second]) for atom in rule.body]


def _about_entity(rng: Random, cast: Cast, phrase: str) -> Fact:
    pair = [cast.entity, rng.choice(cast.others)]
    rng.shuffle(pair)
    return Fact(pair[0], phrase, pair[1])


def _distractor(rng: Random, cast: Cast, rules: list[Rule]) -> Fact:
    """The entity with a relation of no rule, a rule's relation with others or in the wrong place, or neither."""
    shape = rng.random()
    free = cast.phrases[-1]
    if shape < 0.35:
        return _about_entity(rng, cast, rng.choice(cast.phrases) if rng.random() < 0.4 else free)
    first, second = rng.sample(cast.others, 2)
    if shape < 0.75 and rules:
        return Fact(first, rng.choice(rng.choice(rules).body).phrase, second)
    if shape < 0.85:
        return Fact(first, cast.phrase, second)
    return Fact(first, rng.choice(cast.phrases), second)


def ask_again(rng: Random, scene: Scene) -> Scene:
    """Another question about the same documents: mostly one that a rule answers, else one that a document answers."""
    fact = rng.choice(scene.facts)
    asks_object = rng.random() < 0.5
    entity = fact.subject if asks_object else fact.object
    if rng.random() < 0.25 or not scene.rules:
        return replace(scene, entity=entity, phrase=fact.phrase, asks_object=asks_object)
    led = [atom for rule in scene.rules for atom in rule.body if len(rule.body) == 1 and atom.phrase == fact.phrase]
    exchanged = bool(led) and led[0].first == 2
    return replace(scene, entity=entity, asks_object=asks_object != exchanged)
