"""Made-up knowledge graphs and questions about them, from which the rule generator learns to follow rules."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from shared.rag.prompts import Value, render, template
from shared.replies import Document
from shared.rules.facts import sentence
from tools.world.samples import Sample

ONSETS = "b bl br d dr f fl g gl gr h j k kl kr l m n p pl pr r s sh sk st t th tr v vr w y z zh qu kh gh".split()
VERBS = """
    paint sell borrow teach repair carry follow water photograph bake knit polish measure weigh deliver lend
    dust mow whistle sketch juggle varnish wrap unpack sweep iron fold stir taste season plough harvest sow
    prune translate recite proofread bind catalogue tune conduct compose rehearse applaud glue carve weave dye
    embroider tickle greet wink nod salute escort fetch borrow outrun overtake imitate admire envy tutor babysit
""".split()
NOUNS = """
    lamps ladders bread letters roofs bicycles kettles violins maps gardens orchards boats umbrellas clocks
    carpets spoons pumpkins stamps candles barrels mirrors puppets scarves saddles lanterns marbles kites
    hammocks teapots windmills pianos cushions pebbles feathers blankets buttons baskets curtains chimneys
    fences
""".split()
ADJECTIVES = """
    old green heavy wooden quiet bright tiny round rusty golden striped folded borrowed winter summer
""".split()
LINKS = "to from with for about near behind beside without after before against over".split()
ADVERBS = "slowly twice gladly again at dawn by hand in winter on foot together every spring at noon".split()
TITLES = """
    Baker Gardener Carpenter Librarian Astronomer Sailor Weaver Beekeeper Cobbler Juggler Potter Miller Tailor
    Glassblower Lamplighter Shepherd Clockmaker Harpist Ferryman Cartographer Chandler Cooper Drummer Falconer
""".split()
GROUPS = "Guild Choir Orchard Workshop Bakery Orchestra Observatory Kennel Aviary Bookshop Regatta Nursery".split()
BASES = "unit node item box peg tile card bead link edge tie bond path rung knot cell gear leaf".split()
_ENDINGS = tuple(vowel + coda for vowel in "aeiou" for coda in ("", *"nrlstkmd"))
_MORE = ("ai", "ei", "ou", "ia", "é", "ü", "ö", "ang", "ind", "org", "ash", "akh")
SYLLABLES = tuple(onset + ending for onset in ONSETS for ending in (*_ENDINGS, *_MORE))
PARTICLES = ("ob", "zu", "ver", "del", "ek")

# Made-up names of entities and phrases of relations. Training and test draw from disjoint syllables and words.
#
# `tests/unit/tools/world` compares them with the names and relations of ICEWS14 and Kinship. In the shipped model's
# run one name of 131,546 was by chance that of an entity of ICEWS14 (`Shas`), and no phrase.


@dataclass(frozen=True)
class Vocabulary:
    """The parts of names and phrases."""

    syllables: Sequence[str]
    verbs: Sequence[str]
    nouns: Sequence[str]
    titles: Sequence[str]
    groups: Sequence[str]
    bases: Sequence[str]


LISTS = (SYLLABLES, VERBS, NOUNS, TITLES, GROUPS, BASES)
# Every sixth word is kept for the tests.
TRAIN_NAMES, TEST_NAMES = (
    Vocabulary(*([word for index, word in enumerate(listed) if (index % 6 == 5) == test] for listed in LISTS))
    for test in (False, True)
)


def invented_word(rng: Random, vocabulary: Vocabulary) -> str:
    """Draw one to three syllables of at least four letters together; now and then random letters."""
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
        first = rng.choice((parts[-1], rng.choice(PARTICLES)))
        parts[-1] = f"{first}-{invented_word(rng, vocabulary).capitalize()}"
    elif shape < 0.33:
        parts[-1] = f"{rng.choice('DOT')}'{parts[-1]}"
    return " ".join(parts)


def entities(rng: Random, vocabulary: Vocabulary, count: int, numbered: float) -> list[str]:
    """Draw different names for the entities of one scene: of one family, so that they can be mistaken for one another.

    `numbered` is the share of the scenes whose entities are a word with numbers.
    """
    if rng.random() < numbered:
        return _numbered(rng, vocabulary, count, 120)
    family = rng.random()
    names: list[str] = []
    while len(names) < count:
        if rng.random() < (0.5 if family < 0.5 else 0.1):
            title = rng.choice(vocabulary.titles)
            if rng.random() < 0.4:
                joined = rng.choice((" ", " of ", " / ", " and "))
                title = f"{title}{joined}{rng.choice(vocabulary.groups)}"
            place = " ".join(invented_word(rng, vocabulary).capitalize() for _ in range(rng.choice((1, 1, 2))))
            if rng.random() < 0.05:
                place = f"{place}, {invented_word(rng, vocabulary).capitalize()}"
            name = f"{title} ({place})" if rng.random() < 0.7 else f"{place} {title}"
        else:
            name = _person(rng, vocabulary)
        if names and rng.random() < 0.15 and "(" not in name:
            other = rng.choice(names)
            own, shared = name.split(" "), other.split(" ")
            name = " ".join([shared[0], *own[1:]] if rng.random() < 0.5 and len(own) > 1 else [*own[:-1], shared[-1]])
        if name not in names:
            names.append(name)
    return names


def _numbered(rng: Random, vocabulary: Vocabulary, count: int, most: int) -> list[str]:
    base = rng.choice(vocabulary.bases) if rng.random() < 0.3 else invented_word(rng, vocabulary)
    if rng.random() < 0.2:
        base = base.capitalize()
    return [f"{base}{number}" for number in rng.sample(range(most), count)]


def relations(rng: Random, vocabulary: Vocabulary, count: int, numbered: float) -> list[str]:
    """Draw different phrases for the relations of one scene; some differ in a word only."""
    if rng.random() < numbered:
        return _numbered(rng, vocabulary, count, 26)
    phrases: list[str] = []
    while len(phrases) < count:
        related = rng.choice(phrases) if phrases and rng.random() < 0.3 else ""
        if related:
            # A phrase like another one: a word more, or another last word.
            added = rng.choice((*ADVERBS, rng.choice(vocabulary.nouns)))
            parts = related.split(" ")
            phrase = " ".join([*parts, added] if rng.random() < 0.5 or len(parts) == 1 else [*parts[:-1], added])
        else:
            phrase = _phrase(rng, vocabulary)
        if phrase not in phrases:
            phrases.append(phrase)
    return phrases


def _phrase(rng: Random, vocabulary: Vocabulary) -> str:
    """Draw one to six words."""
    verb = invented_word(rng, vocabulary) if rng.random() < 0.4 else rng.choice(vocabulary.verbs)
    shape = rng.random()
    if shape < 0.2:
        return verb
    thing = invented_word(rng, vocabulary) if rng.random() < 0.3 else rng.choice(vocabulary.nouns)
    if rng.random() < 0.35:
        thing = f"{rng.choice(ADJECTIVES)} {thing}"
    if shape < 0.5:
        return f"{verb} {thing}"
    if shape < 0.6:
        return f"{verb}, {rng.choice(vocabulary.verbs)}, or {rng.choice(vocabulary.verbs)} {thing}"
    if shape < 0.7:
        return f"{verb} {rng.choice(LINKS)}"
    if shape < 0.78:
        return f"{verb} {thing} (such as {rng.choice(vocabulary.nouns)})"
    return f"{verb} {thing} {rng.choice(LINKS)}"


# How questions are put. The held-out forms are those of the question sets that the system makes from graphs.


@dataclass(frozen=True)
class Phrasings:
    """Forms of a question about the object of a fact, and about its subject; optional words before it with a time."""

    objects: tuple[str, ...]
    subjects: tuple[str, ...]
    times: tuple[str, ...]


TEST_PHRASINGS = Phrasings(
    objects=("{entity} {phrase} whom or what?",), subjects=("Who or what {phrase} {entity}?",), times=("On {time}, ",)
)
TRAIN_PHRASINGS = Phrasings(
    objects=(
        "{entity} {phrase} which entity?", "{entity} {phrase} what?", "{entity} {phrase} whom?",
        "{entity} {phrase} who or which one?", "Name the one that {entity} {phrase}.",
        "Find X: {entity} {phrase} X.", "Complete: {entity} {phrase} _.", "Tell which entity {entity} {phrase}.",
        "{entity} {phrase} what or which?", "Whom does it concern: {entity} {phrase} ...?",
    ),
    subjects=(
        "Which entity {phrase} {entity}?", "What {phrase} {entity}?", "Who {phrase} {entity}?",
        "Which one or who {phrase} {entity}?", "Name the one that does this: {phrase} {entity}.",
        "Find X: X {phrase} {entity}.", "Complete: _ {phrase} {entity}.", "Tell which entity {phrase} {entity}.",
        "What or which {phrase} {entity}?", "Whose deed is it: ... {phrase} {entity}?",
    ),
    times=("At {time}, ", "Time {time}: ", "In the records of {time}, ", "On the day {time}, ", "By {time}, "),
)  # fmt: skip


def ask(rng: Random, phrasings: Phrasings, entity: str, phrase: str, time: str | None, *, asks_object: bool) -> str:
    """Write the question for the other end of a fact."""
    form = rng.choice(phrasings.objects if asks_object else phrasings.subjects)
    before = rng.choice(phrasings.times).format(time=time) if time else ""
    return before + form.format(entity=entity, phrase=phrase)


# Facts, rules, a question, and the answer that the rule generator has to learn.


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
        """Write the rule as `shared.rag.guidance` does."""
        return f"{' and '.join(map(str, self.body))} leads to {Atom(1, self.head, 2)}"


@dataclass(frozen=True)
class Scene:
    """The content of a prompt: a question for the object or the subject of `phrase`, rules best first, documents."""

    entity: str
    phrase: str
    asks_object: bool
    rules: tuple[Rule, ...]
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Finding:
    """The answer and its source; no rule if a document answers directly."""

    answer: str
    facts: tuple[Fact, ...]
    rule: Rule | None = None


def find_answer(scene: Scene) -> Finding:
    """Return the fact in question, else the first rule that matches, else the first document that names the entity."""
    asked = Rule((Atom(1, scene.phrase, 2),), scene.phrase)
    for rule in (asked, *scene.rules):
        # The first documents that match a rule's body, beginning at the variable that the question names.
        known, wanted = (1, 2) if scene.asks_object else (2, 1)
        found = _extend(scene.facts, rule.body, {known: scene.entity}, wanted, ())
        if found:
            return Finding(found.answer, found.facts, None if rule is asked else rule)
    for fact in scene.facts:
        if scene.entity in (fact.subject, fact.object):
            return Finding(fact.object if fact.subject == scene.entity else fact.subject, (fact,))
    first = scene.facts[0]
    return Finding(first.object if scene.asks_object else first.subject, (first,))


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


def draw_date(rng: Random) -> str:
    """Draw any day but those of 2014, the year of ICEWS14."""
    year = rng.choice([year for year in range(1990, 2032) if year != 2014])
    return f"{year}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def draw_scene(rng: Random, vocabulary: Vocabulary, kind: Kind, size: Size) -> tuple[Scene, str | None]:
    """Draw a scene and the date of its question."""
    count = size.documents if rng.random() < 0.5 else rng.randint(1, size.documents)
    dated, asks_object = rng.random() < size.dated, rng.random() < 0.5
    entity, *others = entities(rng, vocabulary, count + 3, size.numbered)
    phrase, *phrases = relations(rng, vocabulary, 5, size.numbered)
    cast = Cast(entity, others, phrase, phrases)
    rules = _draw_rules(rng, cast, kind, size)
    if kind == "direct" or (kind == "plain" and rng.random() < 0.5):
        facts = [_match(rng, cast, _one_atom(cast.phrase, cast.phrase, exchanged=False), asks_object=asks_object)[0]]
    elif kind in ("irrelevant", "plain"):
        facts = [_about_entity(rng, cast, cast.phrases[-1])]
    else:
        chosen = rules if kind != "several" else [rng.choice(rules)]
        wanted = [rule for rule in chosen if (len(rule.body) == 2) == (kind == "chained")] or chosen
        facts = _match(rng, cast, wanted[0] if kind == "chained" else rng.choice(wanted), asks_object=asks_object)
    while len(facts) < count:
        # The entity with a relation of no rule, a rule's relation with others or in the wrong place, or neither.
        shape = rng.random()
        free = cast.phrases[-1]
        if shape < 0.35:
            distractor = _about_entity(rng, cast, rng.choice(cast.phrases) if rng.random() < 0.4 else free)
        else:
            first, second = rng.sample(cast.others, 2)
            if shape < 0.75 and rules:
                distractor = Fact(first, rng.choice(rng.choice(rules).body).phrase, second)
            else:
                distractor = Fact(first, cast.phrase if shape < 0.85 else rng.choice(cast.phrases), second)
        facts.append(distractor)
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
        ends = [(1, phrases[0], 3), (3, rng.choice(cast.phrases[:-1]), 2)]
        rules[0] = Rule(tuple(Atom(*(end if rng.random() < 0.6 else end[::-1])) for end in ends), cast.phrase)
    if kind in ("same", "exchanged", "chained"):
        rng.shuffle(rules)
    return rules


def _one_atom(phrase: str, head: str, *, exchanged: bool) -> Rule:
    return Rule((Atom(2, phrase, 1) if exchanged else Atom(1, phrase, 2),), head)


def _match(rng: Random, cast: Cast, rule: Rule, *, asks_object: bool) -> list[Fact]:
    """Return facts that match a rule's body with the entity in question at the end that the question names."""
    values = dict(zip((3, 1, 2), rng.sample(cast.others, 3), strict=True))
    values[1 if asks_object else 2] = cast.entity
    return [Fact(values[atom.first], atom.phrase, values[atom.second]) for atom in rule.body]


def _about_entity(rng: Random, cast: Cast, phrase: str) -> Fact:
    pair = [cast.entity, rng.choice(cast.others)]
    rng.shuffle(pair)
    return Fact(pair[0], phrase, pair[1])


def ask_again(rng: Random, scene: Scene) -> Scene:
    """Ask again about the same documents: mostly questions for a rule, otherwise for a document."""
    fact = rng.choice(scene.facts)
    asks_object = rng.random() < 0.5
    entity = fact.subject if asks_object else fact.object
    if rng.random() < 0.25 or not scene.rules:
        return replace(scene, entity=entity, phrase=fact.phrase, asks_object=asks_object)
    led = [atom for rule in scene.rules for atom in rule.body if len(rule.body) == 1 and atom.phrase == fact.phrase]
    exchanged = bool(led) and led[0].first == 2
    return replace(scene, entity=entity, asks_object=asks_object != exchanged)


Template = Literal["rulerag", "rulerag-cot", "cot"]


@dataclass(frozen=True)
class Split:
    """The parts of the names, phrases and questions of a sample."""

    vocabulary: Vocabulary
    phrasings: Phrasings


@dataclass(frozen=True)
class Level:
    """How large the scenes of a training stage are, and how often each kind and template is drawn."""

    size: Size
    kinds: dict[Kind, int]
    templates: dict[Template, int]
    further: int = 0  # questions after the first, about the same documents and rules


TRAIN = Split(TRAIN_NAMES, TRAIN_PHRASINGS)
TEST = Split(TEST_NAMES, TEST_PHRASINGS)
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
    """Write a sample of a training stage; scenes without rules are asked under the template for plain retrieval."""
    (kind,) = rng.choices(list(level.kinds), weights=list(level.kinds.values()))
    (name,) = rng.choices(list(level.templates), weights=list(level.templates.values()))
    return kind_sample(rng, split, kind, name, level.size, level.further)


def kind_sample(rng: Random, split: Split, kind: Kind, name: Template, size: Size, further: int = 0) -> Sample:
    scene, time = draw_scene(rng, split.vocabulary, kind, size)
    used: Template = "cot" if kind == "plain" else name
    found, more = find_answer(scene), []
    for _ in range(further if used != "rulerag-cot" else further // 3):
        other = ask_again(rng, scene)
        more.append((f"Question: {_question(rng, split, other, time)}", reply(used, find_answer(other))))
    question = _question(rng, split, scene, time)
    return Sample(prompt(used, scene, question), reply(used, found), found.answer, tuple(more))


def _question(rng: Random, split: Split, scene: Scene, time: str | None) -> str:
    return ask(rng, split.phrasings, scene.entity, scene.phrase, time, asks_object=scene.asks_object)


def prompt(name: Template, scene: Scene, question: str) -> str:
    """Render the served template with a scene's documents and rules; that for plain retrieval leaves rules out."""
    context = [Document(problem="", text=str(fact)) for fact in scene.facts]
    slots: dict[str, Value] = {"question": question, "context": context}
    if scene.rules and name != "cot":
        slots["rules"] = "\n".join(["Rules:", *map(str, scene.rules), "\n"])
    return render(template(name), slots)


def reply(name: Template, found: Finding) -> str:
    """Write the boxed answer; under `rulerag-cot` the rule and its documents come first."""
    box = f"\\boxed{{{found.answer}}}"
    if name != "rulerag-cot":
        return box
    return "\n".join([*([str(found.rule)] if found.rule else []), *map(str, found.facts), box])
