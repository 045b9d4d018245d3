"""Training samples of the label judge: facts that documents hold, lack or deny, in the metrics' served templates.

A sample is about a made-up graph (`tools.world.relations`) or about the problem world (`mathrag_gate.demo.world`). What
makes a label true is planted: a fact is kept, joined with another, given another end (swapped), taken from elsewhere
(foreign), or denied.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product, takewhile
from random import Random
from typing import Literal, NamedTuple

from mathrag_gate.demo import world
from shared.rag.answer_metrics import split_units
from shared.rag.prompts import Value, render, template
from shared.replies import Document
from tools.world import relations, samples
from tools.world.samples import Sample

LabelKind = Literal["support", "sufficient", "addresses", "relevance"]
"""Templates of the four labels: S, F, A and R of the metrics."""
Domain = Literal["graph", "world", "mathematics"]
"""What a sample is about; mathematics of random words and formulas teaches to compare any text, for `support` only."""

#: What may be planted, the label that it deserves, and how often training draws it.
SORTS: dict[tuple[LabelKind, Domain], dict[str, tuple[int, int]]] = {
    ("support", "graph"): {
        "kept": (3, 30), "joined": (3, 12), "half": (2, 12), "swapped": (2, 24), "foreign": (2, 8), "denied": (1, 14),
    },
    ("support", "world"): {"kept": (3, 45), "swapped": (2, 20), "foreign": (2, 10), "contradicted": (1, 25)},
    ("support", "mathematics"): {"kept": (3, 50), "foreign": (2, 50)},
    ("sufficient", "graph"): {"one": (3, 40), "several": (2, 25), "none": (1, 35)},
    ("sufficient", "world"): {"one": (3, 40), "several": (2, 25), "none": (1, 35)},
    ("addresses", "graph"): {"all": (4, 35), "part": (3, 25), "other": (2, 25), "refusal": (1, 15)},
    ("addresses", "world"): {"all": (4, 35), "part": (3, 25), "other": (2, 25), "refusal": (1, 15)},
    ("relevance", "graph"): {"answer": (5, 40), "related": (2, 30), "unrelated": (1, 30)},
    ("relevance", "world"): {"full": (5, 20), "rule": (4, 20), "steps": (3, 15), "poor": (2, 15), "unrelated": (1, 30)},
}  # fmt: skip
KIND_WEIGHTS: dict[LabelKind, int] = {"support": 45, "sufficient": 25, "addresses": 10, "relevance": 20}
TOGETHER = {"served": 3, "brief": 6}
"""Labels of one training sample: all about the same material, one after the other."""


@dataclass(frozen=True)
class Forms:
    """How facts are said and denied (`{}` stands for the fact), asked for, and how replies decline to answer."""

    facts: Sequence[str]
    dated: Sequence[str]
    denials: Sequence[str]
    questions: relations.Phrasings
    refusals: Mapping[world.Language, Sequence[str]]


@dataclass(frozen=True)
class Split:
    """Names and phrasings that a sample may use."""

    operators: samples.Split
    names: relations.Vocabulary
    forms: Forms


TRAIN = Split(
    samples.Split(world.TRAIN_NAMES, world.TRAIN_TEMPLATES, world.TRAIN_CHINESE),
    relations.TRAIN_NAMES,
    Forms(
        facts=("{}.", "{}.", "It is known that {}.", "They say that {}.", "As the notes say, {}."),
        dated=("On {time}, {}.", "{} on {time}.", "Time {time} {}.", "On {time} it was known that {}."),
        denials=("It is not true that {}.", "It is false that {}.", "It is not the case that {}."),
        questions=relations.TRAIN_PHRASINGS,
        refusals={
            "en": (
                "I do not know.", "I cannot answer this.", "The documents do not say.", "I am not able to tell.",
                "There is not enough information.", "No answer can be given.", "Sorry, I have no answer to this.",
                "It cannot be known from the documents.", "I do not know the answer to this question.",
            ),
            "zh": ("我不知道。", "文档没有说明。", "无法回答这个问题。", "信息不足。"),
        },
    ),
)  # fmt: skip
TEST = Split(
    samples.Split(world.TEST_NAMES, world.TEST_TEMPLATES, world.TEST_CHINESE),
    relations.TEST_NAMES,
    Forms(
        facts=("{}.", "The notes say that {}.", "As is known, {}."),
        dated=("{}, on {time}.", "It was on {time} that {}."),
        denials=("That {} is not true.", "They say it is false that {}."),
        questions=relations.TEST_PHRASINGS,
        refusals={
            "en": ("I cannot say.", "The documents do not tell.", "I do not have enough information to answer."),
            "zh": ("我无法回答。", "文档没有答案。"),
        },
    ),
)


_INSTRUCTIONS = re.compile(r"\A.*\n\n|^(?:\[\[|Reply with|只回答).*\n", re.MULTILINE)
"""What a template says before the material, and about its labels."""


class Prompt(NamedTuple):
    """Values of a template's slots, and the label that they deserve."""

    values: Mapping[str, Value]
    label: int


def draw_sample(rng: Random, split: Split, domains: Mapping[Domain, int], *, brief: bool = False) -> Sample:
    """Draw a training sample: some labels of one kind about the same material; `brief` leaves instructions out."""
    (kind,) = rng.choices(list(KIND_WEIGHTS), list(KIND_WEIGHTS.values()))
    (domain,) = rng.choices(list(domains), list(domains.values()))
    if domain == "mathematics":
        kind = "support"
    # The words of graphs are English only.
    language: world.Language = "zh" if domain == "world" and rng.random() < 2 * samples.CHINESE else "en"
    weights = {sort: weight for sort, (_, weight) in SORTS[kind, domain].items()}
    sorts = rng.choices(list(weights), list(weights.values()), k=TOGETHER["brief" if brief else "served"])
    return label_sample(rng, split, kind, domain, sorts, language, brief=brief)


def label_sample(
    rng: Random,
    split: Split,
    kind: LabelKind,
    domain: Domain,
    sorts: Sequence[str],
    language: world.Language = "en",
    *,
    brief: bool = False,
) -> Sample:
    """Ask for a label of each sort about material that they share; only the first prompt is written in full."""
    name = kind if language == "en" else f"{kind}-zh"
    prompts = _WRITE[kind, domain](rng, split, language, sorts)
    texts = [render(template(name), prompt.values) for prompt in prompts]
    if brief:
        texts = [_INSTRUCTIONS.sub("", text).strip() for text in texts]
    replies = [f"[[{prompt.label}]]" for prompt in prompts]
    lines = [text.split("\n") for text in texts]
    shared = sum(1 for _ in takewhile(lambda line: len(set(line)) == 1, zip(*lines, strict=False)))
    more = [("\n".join(each[shared:]).lstrip("\n"), reply) for each, reply in zip(lines, replies, strict=True)]
    return Sample(texts[0], replies[0], replies[0], tuple(more[1:]))


# Graphs.


class Fact(NamedTuple):
    """Subject, phrase of the relation, object, maybe a date; `denied` if it is said not to be so."""

    subject: str
    phrase: str
    object: str
    time: str | None = None
    denied: bool = False


class Scene:
    """A few facts, and names that occur in none of them."""

    def __init__(self, rng: Random, split: Split, count: int) -> None:
        self.rng, self.forms = rng, split.forms
        names = relations.entities(rng, split.names, 11, 0.3)
        phrases = relations.relations(rng, split.names, 8, 0.3)
        self.names, self.foreign_names = names[:6], names[6:]
        self.phrases, self.foreign_phrases = phrases[:4], phrases[4:]
        self.dated = rng.random() < 0.3
        self.facts: list[Fact] = []
        while len(self.facts) < count:
            self.facts.append(self.draw_new(denied=len(self.facts) > 1 and rng.random() < 0.2))

    def draw_new(self, subject: str = "", phrase: str = "", end: str = "", *, denied: bool = False) -> Fact:
        """Draw a fact that the scene neither has nor denies."""
        while True:
            fact = Fact(
                subject or self.rng.choice(self.names), phrase or self.rng.choice(self.phrases),
                end or self.rng.choice(self.names), self._draw_time(), denied,
            )  # fmt: skip
            if fact.subject != fact.object and not self.mentions(fact):
                return fact

    def draw_foreign(self) -> Fact:
        """Draw a fact whose names the scene does not have."""
        subject, other = self.rng.sample(self.foreign_names, 2)
        return Fact(subject, self.rng.choice(self.foreign_phrases), other, self._draw_time())

    def swap(self, fact: Fact) -> Fact:
        """Give a fact another end, relation or date, so that the scene neither has nor denies it."""
        if fact.time and self.rng.random() < 0.25:
            return fact._replace(time=self._draw_time())
        while True:
            name, phrase = self.rng.choice(self.names), self.rng.choice(self.phrases)
            changes = (fact._replace(subject=name), fact._replace(object=name), fact._replace(phrase=phrase))
            changed = self.rng.choice(changes)
            if changed.subject != changed.object and not self.mentions(changed):
                return changed

    def mentions(self, fact: Fact) -> bool:
        return fact[:3] in [each[:3] for each in self.facts]

    def _draw_time(self) -> str | None:
        return relations.draw_date(self.rng) if self.dated else None

    def say(self, *facts: Fact) -> str:
        """Write a fact, or two without dates, as one sentence."""
        said = ", and ".join(f"{fact.subject} {fact.phrase} {fact.object}" for fact in facts)
        [fact, *_] = facts
        form = self.rng.choice(self.forms.dated if fact.time and not fact.denied else self.forms.facts)
        if fact.denied:
            form = self.rng.choice(self.forms.denials)
        return form.replace("{}", said).replace("{time}", str(fact.time))

    def write_documents(self) -> list[Document]:
        """Write the facts in any order, one or two to a document."""
        self.rng.shuffle(self.facts)
        texts = [""]
        for fact in self.facts:
            if texts[-1] and self.rng.random() < 0.6:
                texts.append("")
            texts[-1] = f"{texts[-1]} {self.say(fact)}".strip()
        return [Document(problem="", text=text) for text in texts]

    def ask(self, fact: Fact, *, asks_object: bool = True) -> str:
        """Ask for an end of a fact."""
        entity = fact.subject if asks_object else fact.object
        return relations.ask(self.rng, self.forms.questions, entity, fact.phrase, None, asks_object=asks_object)


def _graph_support(rng: Random, split: Split, _: world.Language, sorts: Sequence[str]) -> list[Prompt]:
    scene = Scene(rng, split, rng.choice((2, 2, 3, 4, 5, 6)))
    documents = scene.write_documents()
    question = scene.ask(rng.choice(scene.facts), asks_object=rng.random() < 0.5)
    told = [fact for fact in scene.facts if not fact.denied]

    def write(sort: str) -> str:
        if sort in ("joined", "half") and not scene.dated:
            first, second = rng.sample(told, 2)
            pair = [first, scene.swap(second) if sort == "half" else second]
            return scene.say(*rng.sample(pair, 2))
        if sort in ("swapped", "half"):
            return scene.say(scene.swap(rng.choice(told)))
        if sort == "foreign":
            return scene.say(scene.draw_foreign())
        fact = rng.choice(scene.facts)
        return scene.say(fact._replace(denied=not fact.denied, time=None) if sort == "denied" else fact)

    return [
        Prompt({"question": question, "documents": documents, "sentence": write(sort)}, label)
        for sort, (label, _) in ((sort, SORTS["support", "graph"][sort]) for sort in sorts)
    ]


def _graph_sufficient(rng: Random, split: Split, _: world.Language, sorts: Sequence[str]) -> list[Prompt]:
    asks_object = rng.random() < 0.5
    answers: Counter[tuple[str, str]] = Counter()  # of a question about an entity and a phrase
    while not {1, 2} <= set(answers.values()):
        scene = Scene(rng, split, rng.choice((2, 2, 3, 4)))
        scene.facts = [fact._replace(denied=False) for fact in scene.facts]
        twin = rng.choice(scene.facts)
        scene.facts.append(
            scene.draw_new(twin.subject, twin.phrase) if asks_object else scene.draw_new("", twin.phrase, twin.object)
        )
        answers = Counter((fact.subject if asks_object else fact.object, fact.phrase) for fact in scene.facts)
    documents = scene.write_documents()
    keys = {
        "one": [key for key, count in answers.items() if count == 1],
        "several": [key for key, count in answers.items() if count > 1],
        "none": [key for key in product(scene.names, scene.phrases) if key not in answers],
    }
    prompts = []
    for sort in sorts:
        entity, phrase = rng.choice(keys[sort])
        question = scene.ask(Fact(entity, phrase, entity), asks_object=asks_object)
        prompts.append(Prompt({"question": question, "documents": documents}, SORTS["sufficient", "graph"][sort][0]))
    return prompts


def _graph_addresses(rng: Random, split: Split, _: world.Language, sorts: Sequence[str]) -> list[Prompt]:
    scene = Scene(rng, split, 6)
    scene.facts = [fact._replace(denied=False, time=None) for fact in scene.facts]
    prompts = []
    for sort in sorts:
        asks_object = rng.random() < 0.5
        first, second = rng.sample(scene.facts, 2)
        while second[:2] == first[:2] or second[1:3] == first[1:3]:
            second = rng.choice([*scene.facts, scene.draw_new()])
        both = sort == "part" or rng.random() < 0.4
        question = scene.ask(first, asks_object=asks_object)
        if both:
            question += f" {scene.ask(second, asks_object=asks_object)}"
        end = first.object if asks_object else first.subject
        reply = rng.choice(split.forms.refusals["en"])
        if sort == "all" and not both:
            reply = rng.choice((scene.say(first), scene.say(first), f"{end}.", f"\\boxed{{{end}}}"))
        elif sort == "all":
            reply = f"{scene.say(first)} {scene.say(second)}"
        elif sort == "part":
            reply = scene.say(rng.choice((first, second)))
        elif sort == "other":
            others = [fact for fact in scene.facts if fact not in (first, second) and fact.phrase != first.phrase]
            reply = scene.say(rng.choice(others or [scene.draw_foreign()]))
        prompts.append(Prompt({"question": question, "reply": reply}, SORTS["addresses", "graph"][sort][0]))
    return prompts


def _graph_relevance(rng: Random, split: Split, _: world.Language, sorts: Sequence[str]) -> list[Prompt]:
    scene = Scene(rng, split, 6)
    asks_object = rng.random() < 0.5
    asked = scene.facts[0]
    entity = asked.subject if asks_object else asked.object
    question = scene.ask(asked, asks_object=asks_object)
    related = [scene.draw_new(entity, rng.choice(scene.phrases)) for _ in range(2)]
    prompts = []
    for sort in sorts:
        others = [fact for fact in scene.facts if entity not in fact[:3]] or [scene.draw_foreign()]
        shown = {
            "answer": asked,
            "related": rng.choice([fact for fact in related if fact.phrase != asked.phrase] or [asked]),
            "unrelated": rng.choice([*others, scene.draw_foreign()]),
        }[sort]
        facts = [shown, *([rng.choice(others)] if rng.random() < 0.4 else [])]
        text = " ".join(map(scene.say, rng.sample(facts, len(facts))))
        label = 5 if shown is asked else SORTS["relevance", "graph"][sort][0]
        prompts.append(Prompt({"question": question, "document": Document(problem="", text=text)}, label))
    return prompts


# The problem world: operators, and documents that state, follow or break their rules.

_RESULT = re.compile(r"(?:boxed\{|is |是 )(\d)\b")


class Shelf:
    """A few operators, and documents about some of them."""

    def __init__(
        self, rng: Random, split: Split, language: world.Language, kinds: Sequence[Sequence[world.Kind]]
    ) -> None:
        """Write documents of the kinds given for each operator; one more operator has none."""
        self.rng, self.split, self.language = rng, split.operators, language
        self.operators: list[world.Operator] = [world.random_operator(rng, self.split.names)]
        while len(self.operators) < len(kinds) + 1:
            other = samples.other_operator(rng, self.split, rng.choice(self.operators))
            if other.name not in [each.name for each in self.operators]:
                self.operators.append(other)
        made = [self.write(self.operators[at], kind) for at, few in enumerate(kinds) for kind in few]
        self.made = rng.sample(made, len(made))
        self.documents = [Document(problem=each.problem, text=each.text) for each in self.made]

    def write(self, operator: world.Operator, kind: world.Kind) -> world.Document:
        style: world.Style = "formal" if self.rng.random() < samples.FORMAL else "plain"
        self.wording = world.WORDINGS[self.language, style] if self.rng.random() < 0.9 else world.ENGLISH
        a, b = self.rng.randrange(10), self.rng.randrange(10)
        return world.document(self.rng, operator, kind, self.split.phrasings(self.language), a, b, self.wording)

    def rules(self, operator: world.Operator) -> set[str]:
        """Return the rules that documents state for an operator."""
        return {str(each.stated) for each in self.made if each.operator.name == operator.name and each.stated}

    def ask(self, operator: world.Operator) -> str:
        a, b = self.rng.randrange(10), self.rng.randrange(10)
        return world.question(self.rng, self.split.phrasings(self.language), operator.name, a, b)


def _draw_kinds(rng: Random) -> list[list[world.Kind]]:
    """Draw the kinds of one to five documents about one to three operators."""
    kinds: list[list[world.Kind]] = [[] for _ in range(rng.choice((1, 2, 3)))]
    for at in range(rng.choice((1, 2, 3, 3, 4, 5))):
        (kind,) = rng.choices(list(samples.MIXED), list(samples.MIXED.values()))
        kinds[at if at < len(kinds) else rng.randrange(len(kinds))].append(kind)
    return [each for each in kinds if each]


def _world_support(rng: Random, split: Split, language: world.Language, sorts: Sequence[str]) -> list[Prompt]:
    kinds = _draw_kinds(rng)
    kinds[0].append(rng.choice(("full", "rule", "wrong")))
    shelf = Shelf(rng, split, language, kinds)
    question = shelf.ask(shelf.operators[0])
    text = " ".join(each.text for each in shelf.documents)
    prompts = []
    for sort in sorts:
        sentence = _say_of_operators(rng, shelf, text, sort)
        values: dict[str, Value] = {"question": question, "documents": shelf.documents, "sentence": sentence}
        if rng.random() < 0.3:
            before = rng.choice(split_units(rng.choice(shelf.documents).text)).text
            values["before"] = f"{'前一句：' if language == 'zh' else 'Sentence before: '}{before}\n"
        prompts.append(Prompt(values, SORTS["support", "world"][sort][0]))
    return prompts


def _say_of_operators(rng: Random, shelf: Shelf, text: str, sort: str) -> str:
    """Write a sentence of a reply: a rule, an equation or a result."""
    about = rng.random()
    if sort == "kept" and about < 0.35:  # as it stands there
        return rng.choice(split_units(rng.choice(shelf.documents).text)).text
    if sort in ("contradicted", "foreign") or (sort == "kept" and about < 0.65):
        operator, rule = rng.choice([(each.operator, each.stated) for each in shelf.made if each.stated])
        said = str(rule)
        while sort == "contradicted" and said in shelf.rules(operator):
            said = str(world.random_rule(rng))
        return shelf.wording.definition(rng, shelf.operators[-1].name if sort == "foreign" else operator.name, said)
    equations, results = re.findall(r"\d[-+*]\d=\d", text), _RESULT.findall(text)
    if equations and about < 0.85:
        said = rng.choice(equations)
        while sort == "swapped" and said in equations:
            said = said[:-1] + str(rng.randrange(10)) if rng.random() < 0.5 else str(rng.randrange(10)) + said[1:]
        return f"{said}{'。' if shelf.language == 'zh' else '.'}"
    said = rng.choice(results)
    while sort == "swapped" and said in results:
        said = str(rng.randrange(10))
    return shelf.wording.conclusion(int(said))


def _world_sufficient(rng: Random, split: Split, language: world.Language, sorts: Sequence[str]) -> list[Prompt]:
    stating: tuple[world.Kind, ...] = ("full", "rule", "wrong")
    # One rule, maybe two, none, and whatever else.
    kinds: list[list[world.Kind]] = [
        [rng.choice(stating)],
        ["wrong", rng.choice(stating)],
        [rng.choice(("steps", "answer"))],
    ]
    if rng.random() < 0.5:
        kinds[0].append(rng.choice(("steps", "answer")))
    present = {"one": 0, "several": 1, "none": 2}
    wanted = sorted({present[sort] for sort in sorts})
    shelf = Shelf(rng, split, language, [kinds[at] for at in wanted])
    prompts = []
    for sort in sorts:
        operator = shelf.operators[wanted.index(present[sort])]
        if sort == "none" and rng.random() < 0.5:
            operator = shelf.operators[-1]
        label = {0: 1, 1: 3}.get(len(shelf.rules(operator)), 2)
        prompts.append(Prompt({"question": shelf.ask(operator), "documents": shelf.documents}, label))
    return prompts


def _world_addresses(rng: Random, split: Split, language: world.Language, sorts: Sequence[str]) -> list[Prompt]:
    shelf = Shelf(rng, split, language, [["full"], ["full"]])
    phrasings = split.operators.phrasings(language)
    prompts = []
    for sort in sorts:
        first, second, other = rng.sample(shelf.operators, 3)
        a, b, c, d, e, f = (rng.randrange(10) for _ in range(6))
        both = sort == "part" or rng.random() < 0.4
        joined = f"{b}{rng.choice(samples.JOINERS)}{c} {second.name} {d}" if both else b
        question = rng.choice(phrasings).format(name=first.name, a=a, b=joined)
        replies = [_answer(rng, first, a, b), _answer(rng, second, c, d), _answer(rng, other, e, f)]
        reply = {
            "all": " ".join(replies[: 1 + both]),
            "part": rng.choice(replies[:2]),
            "other": replies[2],
            "refusal": rng.choice(split.forms.refusals[language]),
        }[sort]
        prompts.append(Prompt({"question": question, "reply": reply}, SORTS["addresses", "world"][sort][0]))
    return prompts


def _answer(rng: Random, operator: world.Operator, a: int, b: int) -> str:
    """Write a reply that names its operator: with the rule, or the result alone."""
    if rng.random() < 0.6:
        return f"a {operator.name} b = {operator.rule}. {samples.solution(operator.rule, a, b)}"
    return f"{a} {operator.name} {b} = {operator.rule.result(a, b)}."


def _world_relevance(rng: Random, split: Split, language: world.Language, sorts: Sequence[str]) -> list[Prompt]:
    # The grades that `world-judge` gives: 5 states the rule and follows it, 4 states it, 3 follows it, 2 is no use.
    graded: dict[str, Sequence[world.Kind]] = {
        "full": ("full",), "rule": ("rule",), "steps": ("steps",), "poor": ("wrong", "answer"),
        "unrelated": world.KINDS,
    }  # fmt: skip
    kinds = [rng.choice(graded[sort]) for sort in sorts]
    shelf = Shelf(rng, split, language, [[]])
    question = shelf.ask(shelf.operators[0])
    prompts = []
    for sort, kind in zip(sorts, kinds, strict=True):
        made = shelf.write(shelf.operators[sort == "unrelated"], kind)
        document = Document(problem=made.problem, text=made.text)
        prompts.append(Prompt({"question": question, "document": document}, SORTS["relevance", "world"][sort][0]))
    return prompts


def _mathematics_support(rng: Random, _: Split, __: world.Language, sorts: Sequence[str]) -> list[Prompt]:
    problems = [samples.foreign_sentence(rng) for _ in range(rng.choice((1, 2, 3)))]
    told = [[samples.foreign_sentence(rng) for _ in range(rng.choice((1, 2, 3)))] for _ in problems]
    documents = [Document(problem=problem, text=" ".join(text)) for problem, text in zip(problems, told, strict=True)]
    question = samples.foreign_sentence(rng)
    return [
        Prompt(
            {
                "question": question,
                "documents": documents,
                "sentence": rng.choice(rng.choice(told)) if sort == "kept" else samples.foreign_sentence(rng),
            },
            SORTS["support", "mathematics"][sort][0],
        )
        for sort in sorts
    ]


_WRITE: Mapping[tuple[LabelKind, Domain], Callable[[Random, Split, world.Language, Sequence[str]], list[Prompt]]] = {
    ("support", "graph"): _graph_support,
    ("support", "world"): _world_support,
    ("support", "mathematics"): _mathematics_support,
    ("sufficient", "graph"): _graph_sufficient,
    ("sufficient", "world"): _world_sufficient,
    ("addresses", "graph"): _graph_addresses,
    ("addresses", "world"): _world_addresses,
    ("relevance", "graph"): _graph_relevance,
    ("relevance", "world"): _world_relevance,
}
