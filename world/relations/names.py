"""Made-up names of entities and phrases of relations. Training and test draw from disjoint syllables and words.

`tests/unit/world/relations` compares them with the names and relations of ICEWS14 and Kinship. In the shipped model's
run one name of 131,546 was by chance that of an entity of ICEWS14 (`Shas`), and no phrase.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from world.relations import words


@dataclass(frozen=True)
class Vocabulary:
    """What names and phrases are made of."""

    syllables: Sequence[str]
    verbs: Sequence[str]
    nouns: Sequence[str]
    titles: Sequence[str]
    groups: Sequence[str]
    bases: Sequence[str]


def _part(listed: Sequence[str], *, test: bool) -> list[str]:
    """Every sixth word is kept for the tests."""
    return [word for index, word in enumerate(listed) if (index % 6 == 5) == test]


LISTS = (words.SYLLABLES, words.VERBS, words.NOUNS, words.TITLES, words.GROUPS, words.BASES)
TRAIN, TEST = (Vocabulary(*(_part(listed, test=test) for listed in LISTS)) for test in (False, True))


def invented_word(rng: Random, vocabulary: Vocabulary) -> str:
    """One to three syllables of at least four letters together; now and then random letters."""
    count = rng.choice((1, 2, 2, 2))
    word = "".join(rng.choices(vocabulary.syllables, k=count))
    return word if len(word) > 3 else word + rng.choice(vocabulary.syllables)


def _person(rng: Random, vocabulary: Vocabulary) -> str:
    parts = [invented_word(rng, vocabulary).capitalize() for _ in range(rng.choice((1, 1, 1, 2, 2, 2, 3)))]
    shape = rng.random()
    if shape < 0.1:
        parts[0] = f"{parts[0][0]}."
        parts.append(invented_word(rng, vocabulary).capitalize())
    elif shape < 0.3:
        first = rng.choice((parts[-1], rng.choice(words.PARTICLES)))
        parts[-1] = f"{first}-{invented_word(rng, vocabulary).capitalize()}"
    elif shape < 0.33:
        parts[-1] = f"{rng.choice('DOT')}'{parts[-1]}"
    return " ".join(parts)


def _titled(rng: Random, vocabulary: Vocabulary) -> str:
    title = rng.choice(vocabulary.titles)
    if rng.random() < 0.4:
        joined = rng.choice((" ", " of ", " / ", " and "))
        title = f"{title}{joined}{rng.choice(vocabulary.groups)}"
    place = " ".join(invented_word(rng, vocabulary).capitalize() for _ in range(rng.choice((1, 1, 2))))
    if rng.random() < 0.05:
        place = f"{place}, {invented_word(rng, vocabulary).capitalize()}"
    return f"{title} ({place})" if rng.random() < 0.7 else f"{place} {title}"


def entities(rng: Random, vocabulary: Vocabulary, count: int, numbered: float) -> list[str]:
    """Different names for the entities of one scene: of one family, so that they can be mistaken for one another.

    `numbered` is the share of the scenes whose entities are a word with numbers.
    """
    if rng.random() < numbered:
        return _numbered(rng, vocabulary, count, 120)
    family = rng.random()
    names: list[str] = []
    while len(names) < count:
        name = _titled(rng, vocabulary) if rng.random() < (0.5 if family < 0.5 else 0.1) else _person(rng, vocabulary)
        if names and rng.random() < 0.15 and "(" not in name:
            name = _relative(rng, name, rng.choice(names))
        if name not in names:
            names.append(name)
    return names


def _relative(rng: Random, name: str, other: str) -> str:
    """A name that shares its beginning or its end with another one."""
    own, shared = name.split(" "), other.split(" ")
    return " ".join([shared[0], *own[1:]] if rng.random() < 0.5 and len(own) > 1 else [*own[:-1], shared[-1]])


def _numbered(rng: Random, vocabulary: Vocabulary, count: int, most: int) -> list[str]:
    base = rng.choice(vocabulary.bases) if rng.random() < 0.3 else invented_word(rng, vocabulary)
    if rng.random() < 0.2:
        base = base.capitalize()
    return [f"{base}{number}" for number in rng.sample(range(most), count)]


def relations(rng: Random, vocabulary: Vocabulary, count: int, numbered: float) -> list[str]:
    """Different phrases for the relations of one scene; some differ in a word only."""
    if rng.random() < numbered:
        return _numbered(rng, vocabulary, count, 26)
    phrases: list[str] = []
    while len(phrases) < count:
        related = rng.choice(phrases) if phrases and rng.random() < 0.3 else ""
        phrase = _extended(rng, vocabulary, related) if related else _phrase(rng, vocabulary)
        if phrase not in phrases:
            phrases.append(phrase)
    return phrases


def _phrase(rng: Random, vocabulary: Vocabulary) -> str:
    """One to six words."""
    verb = invented_word(rng, vocabulary) if rng.random() < 0.4 else rng.choice(vocabulary.verbs)
    shape = rng.random()
    if shape < 0.2:
        return verb
    thing = invented_word(rng, vocabulary) if rng.random() < 0.3 else rng.choice(vocabulary.nouns)
    if rng.random() < 0.35:
        thing = f"{rng.choice(words.ADJECTIVES)} {thing}"
    if shape < 0.5:
        return f"{verb} {thing}"
    if shape < 0.6:
        return f"{verb}, {rng.choice(vocabulary.verbs)}, or {rng.choice(vocabulary.verbs)} {thing}"
    if shape < 0.7:
        return f"{verb} {rng.choice(words.LINKS)}"
    if shape < 0.78:
        return f"{verb} {thing} (such as {rng.choice(vocabulary.nouns)})"
    return f"{verb} {thing} {rng.choice(words.LINKS)}"


def _extended(rng: Random, vocabulary: Vocabulary, phrase: str) -> str:
    """A phrase like another one: a word more, or another last word."""
    added = rng.choice((*words.ADVERBS, rng.choice(vocabulary.nouns)))
    parts = phrase.split(" ")
    return " ".join([*parts, added] if rng.random() < 0.5 or len(parts) == 1 else [*parts[:-1], added])
