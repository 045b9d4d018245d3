"""Made-up names of entities and phrases of relations. Training and test draw from disjoint syllables and words.

No name and no phrase is one of ICEWS14 or of Kinship: `tests/unit/world/relations` compares them with the data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

_ONSETS = (
    "b bl br d dr f fl g gl gr h j k kl kr l m n p pl pr r s sh sk st t th tr v vr w y z zh qu kh gh"
).split()
_ENDINGS = [vowel + coda for vowel in "aeiou" for coda in ("", "n", "r", "l", "s", "t", "k", "m", "d")]
_ENDINGS += "ai ei ou ia é ü ö ang ind org ash akh".split()
_SYLLABLES = [onset + ending for onset in _ONSETS for ending in _ENDINGS]
_VERBS = (
    "paint sell borrow teach repair carry follow water photograph bake knit polish measure weigh deliver lend "
    "dust mow whistle sketch juggle varnish wrap unpack sweep iron fold stir taste season plough harvest sow prune "
    "translate recite proofread bind catalogue tune conduct compose rehearse applaud glue carve weave dye embroider "
    "tickle greet wink nod salute escort fetch borrow outrun overtake imitate admire envy tutor babysit"
).split()
_NOUNS = (
    "lamps ladders bread letters roofs bicycles kettles violins maps gardens orchards boats umbrellas clocks carpets "
    "spoons pumpkins stamps candles barrels mirrors puppets scarves saddles lanterns marbles kites hammocks teapots "
    "windmills pianos cushions pebbles feathers blankets buttons baskets curtains chimneys fences"
).split()
_ADJECTIVES = "old green heavy wooden quiet bright tiny round rusty golden striped folded borrowed winter summer".split()
_LINKS = "to from with for about near behind beside without after before against over".split()
_ADVERBS = "slowly twice gladly again at dawn by hand in winter on foot together every spring at noon".split()
_TITLES = (
    "Baker Gardener Carpenter Librarian Astronomer Sailor Weaver Beekeeper Cobbler Juggler Potter Miller Tailor "
    "Glassblower Lamplighter Shepherd Clockmaker Harpist Ferryman Cartographer Chandler Cooper Drummer Falconer"
).split()
_GROUPS = "Guild Choir Orchard Workshop Bakery Orchestra Observatory Kennel Aviary Bookshop Regatta Nursery".split()
_BASES = "unit node item box peg tile card bead link edge tie bond path rung knot cell gear leaf".split()
_PARTICLES = ("ob", "zu", "ver", "del", "ek")


@dataclass(frozen=True)
class Vocabulary:
    """What names and phrases are made of."""

    syllables: Sequence[str]
    verbs: Sequence[str]
    nouns: Sequence[str]
    titles: Sequence[str]
    groups: Sequence[str]
    bases: Sequence[str]


def _part(words: Sequence[str], test: bool) -> list[str]:
    """Every sixth word is kept for the tests."""
    return [word for index, word in enumerate(words) if (index % 6 == 5) == test]


TRAIN, TEST = (
    Vocabulary(*(_part(words, test) for words in (_SYLLABLES, _VERBS, _NOUNS, _TITLES, _GROUPS, _BASES)))
    for test in (False, True)
)


def invented_word(rng: Random, vocabulary: Vocabulary) -> str:
    """One to three syllables of at least four letters together; now and then random letters."""
    count = rng.choice((1, 2, 2, 2))
    word = "".join(rng.choices(vocabulary.syllables, k=count))
    return word if len(word) > 3 else word + rng.choice(vocabulary.syllables)


def _person(rng: Random, vocabulary: Vocabulary) -> str:
    words = [invented_word(rng, vocabulary).capitalize() for _ in range(rng.choice((1, 1, 1, 2, 2, 2, 3)))]
    shape = rng.random()
    if shape < 0.1:
        words[0] = f"{words[0][0]}."
        words.append(invented_word(rng, vocabulary).capitalize())
    elif shape < 0.3:
        words[-1] = f"{rng.choice((words[-1], rng.choice(_PARTICLES)))}-{invented_word(rng, vocabulary).capitalize()}"
    elif shape < 0.33:
        words[-1] = f"{rng.choice('DOT')}'{words[-1]}"
    return " ".join(words)


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
        thing = f"{rng.choice(_ADJECTIVES)} {thing}"
    if shape < 0.5:
        return f"{verb} {thing}"
    if shape < 0.6:
        return f"{verb}, {rng.choice(vocabulary.verbs)}, or {rng.choice(vocabulary.verbs)} {thing}"
    if shape < 0.7:
        return f"{verb} {rng.choice(_LINKS)}"
    if shape < 0.78:
        return f"{verb} {thing} (such as {rng.choice(vocabulary.nouns)})"
    return f"{verb} {thing} {rng.choice(_LINKS)}"


def _extended(rng: Random, vocabulary: Vocabulary, phrase: str) -> str:
    """A phrase like another one: a word more, or another last word."""
    added = rng.choice((*_ADVERBS, rng.choice(vocabulary.nouns)))
    words = phrase.split(" ")
    return " ".join([*words, added] if rng.random() < 0.5 or len(words) == 1 else [*words[:-1], added])
