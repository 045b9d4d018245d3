"""The problem world: made-up operators whose rules are only in documents, some of which mislead.

A seed and a setting determine a corpus and its questions, which are the same on every machine. The demo uses them; the
shipped models were trained on other names and other phrasings of questions (`tools/world`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Annotated, Literal, NamedTuple, get_args

import msgspec

from mathrag.errors import Invalid, NotFound
from shared.models.shipped import HEADS, TAILS
from shared.rag.duplicates import has_same_words

Style = Literal["formal", "plain"]
Language = Literal["en", "zh"]


@dataclass(frozen=True, kw_only=True)
class Wording:
    """The sentences of a document, formal or plain, in English or in Chinese; ``{}`` is the place of their content.

    The wording is independent of the logic: any kind of document can have any wording. A formal text has numbered
    steps, connectives and a boxed answer, which the rules of `shared.rag.gate` look for. A plain text has none of them.
    """

    definitions: Sequence[str]
    firsts: Sequence[str]
    seconds: Sequence[str]
    steps_around: str
    box: str
    bare_answer: str
    gap: str
    """Separator of sentences."""

    def definition(self, rng: Random, name: str, rule: str) -> str:
        """Write the sentence that states a rule."""
        return rng.choice(self.definitions).format(f"a {name} b = {rule}")

    def steps(self, rng: Random, first: str, second: str) -> str:
        """Write the sentences with both equations."""
        return self.steps_around.format(rng.choice(self.firsts).format(first), rng.choice(self.seconds).format(second))

    def conclusion(self, result: int) -> str:
        """Write the closing sentence of a document with reasoning."""
        return self.box.format(result)

    def answer(self, result: int) -> str:
        """Write the whole text of a document without reasoning."""
        return self.bare_answer.format(result)


ENGLISH = Wording(
    definitions=("We use {}.", "By definition {}.", "Let {}."),
    firsts=("Since this comes first, {}.", "First we have {}.", "Because this comes first, {}."),
    seconds=("Therefore {}.", "Hence {}.", "Thus {}.", "So we get {}."),
    steps_around="Step 1. {} Step 2. {}",
    box="The answer is \\boxed{{{}}}.",
    bare_answer="The answer is {}.",
    gap=" ",
)
"""Formal wording except for the bare answer; the first models were trained on it."""
DRESSED = replace(
    ENGLISH,
    bare_answer="Step 1. Since it is asked for, we look it up. Step 2. Therefore the answer is \\boxed{{{}}}.",
)
"""Formal wording in all documents: even an answer without reasoning has steps, connectives and a box."""
PLAIN = Wording(
    definitions=("{}.", "It is {}.", "The rule: {}."),
    firsts=("{}.", "We get {}.", "First {}."),
    seconds=("{}.", "Then {}.", "And {}."),
    steps_around="{} {}",
    box="It is {}.",
    bare_answer="The answer is {}.",
    gap=" ",
)
DRESSED_CHINESE = Wording(
    definitions=("定义 {}。", "设 {}。"),
    firsts=("因为先算它，{}。", "由于先算它，{}。"),
    seconds=("所以 {}。", "因此 {}。", "从而 {}。"),
    steps_around="第1步 {}第2步 {}",
    box="答案是 \\boxed{{{}}}。",
    bare_answer="第1步 因为要求它，查表。第2步 所以答案是 \\boxed{{{}}}。",
    gap="",
)
PLAIN_CHINESE = Wording(
    definitions=("规则是 {}。", "{}。"),
    firsts=("先算 {}。", "{}。"),
    seconds=("再算 {}。", "{}。"),
    steps_around="{}{}",
    box="是 {}。",
    bare_answer="答案是 {}。",
    gap="",
)
WORDINGS: dict[tuple[Language, Style], Wording] = {
    ("en", "formal"): DRESSED,
    ("en", "plain"): PLAIN,
    ("zh", "formal"): DRESSED_CHINESE,
    ("zh", "plain"): PLAIN_CHINESE,
}

# Problems about made-up operators whose rule is only in documents.
#
# A name ("zorlo") and a rule ("(8+a)*b", last digit only) are paired at random, so a model cannot know the pairing: it
# needs a document that shows it. There are five kinds of documents, graded by their reasoning.

Kind = Literal["full", "steps", "rule", "wrong", "answer"]
KINDS: tuple[Kind, ...] = get_args(Kind)

#: The grade a judge should give to each kind, from 1 (no reasoning) to 5 (complete).
GRADES: dict[Kind, int] = {"full": 5, "steps": 4, "rule": 3, "wrong": 2, "answer": 1}

_NAMES = [head + tail for head in HEADS for tail in TAILS]
Random(20).shuffle(_NAMES)  # training has every syllable, but not the test pairs
TRAIN_NAMES, TEST_NAMES = tuple(_NAMES[:180]), tuple(_NAMES[180:])

TRAIN_TEMPLATES: tuple[str, ...] = (
    "What is {a} {name} {b}?",
    "Compute {a} {name} {b}.",
    "Find {a} {name} {b}.",
    "Evaluate {a} {name} {b}.",
    "Calculate the value of {a} {name} {b}.",
    "Determine the result of {a} {name} {b}.",
    "Simplify the expression {a} {name} {b}.",
    "What do we get for {a} {name} {b}?",
    "Find the last digit of {a} {name} {b}.",
    "The number {a} {name} {b} is a digit. Which one?",
)
TEST_TEMPLATES: tuple[str, ...] = (
    "What is the value of {a} {name} {b}?",
    "Determine {a} {name} {b}.",
    "Calculate the last digit of {a} {name} {b}.",
    "Evaluate the expression {a} {name} {b}.",
)
TRAIN_CHINESE: tuple[str, ...] = (
    "计算 {a} {name} {b}。",
    "求 {a} {name} {b} 的值。",
    "{a} {name} {b} 等于多少？",
    "{a} {name} {b} 的结果是多少？",
    "求 {a} {name} {b} 的末位数字。",
)
TEST_CHINESE: tuple[str, ...] = (
    "计算 {a} {name} {b} 的值。",
    "{a} {name} {b} 的末位数字是多少？",
    "求 {a} {name} {b} 的结果。",
)


def _apply(sign: str, left: int, right: int) -> int:
    """Return the last digit of one operation (modulo 10, so never negative)."""
    results = {"+": left + right, "-": left - right, "*": left * right}
    return results[sign] % 10


def invented_name(rng: Random) -> str:
    """Invent a name of at most 7 random letters that is not a test name."""
    while True:
        name = "".join(rng.choice(letters) for letters in ("bcdfghjklmnprstvwxz", "aeiou") * 4)
        name = name[rng.randrange(2) :][: rng.randint(4, 7)]
        name = "".join(letter for letter in name if rng.random() < 0.9)
        if len(name) > 2 and name not in TEST_NAMES:
            return name


@dataclass(frozen=True)
class Rule:
    """``(constant first x) second y``, where x, y is a, b or, swapped, b, a."""

    constant: int
    first: str
    second: str
    swapped: bool

    def __str__(self) -> str:
        x, y = ("b", "a") if self.swapped else ("a", "b")
        return f"({self.constant}{self.first}{x}){self.second}{y}"

    def equations(self, a: int, b: int) -> tuple[str, str]:
        """Write both steps as equations between digits, such as ``8+7=5`` and ``5*2=0``."""
        x, y = (b, a) if self.swapped else (a, b)
        middle = _apply(self.first, self.constant, x)
        result = _apply(self.second, middle, y)
        return f"{self.constant}{self.first}{x}={middle}", f"{middle}{self.second}{y}={result}"

    def result(self, a: int, b: int) -> int:
        """Compute the digit that the operator gives for ``a`` and ``b``."""
        return int(self.equations(a, b)[1][-1])

    @property
    def level(self) -> int:
        """Return the difficulty, from 1 (two additions) to 5 (two multiplications)."""
        order = (("+", "+"), ("+", "-"), ("*", "+"), ("*", "-"))
        pair = (self.first, self.second)
        return order.index(pair) + 1 if pair in order else 4 + (self.first == "*")


@dataclass(frozen=True)
class Operator:
    """A made-up name and its rule."""

    name: str
    rule: Rule


@dataclass(frozen=True)
class Document:
    """A solved problem; ``a`` and ``b`` are the digits in its question."""

    kind: Kind
    operator: Operator
    a: int
    b: int
    problem: str
    text: str
    stated: Rule | None  # differs from the operator's rule in a wrong document

    def __str__(self) -> str:
        return f"Problem: {self.problem}\nSolution: {self.text}"


def random_rule(rng: Random, unlike: Iterable[Rule] = ()) -> Rule:
    """Draw one of the 96 rules, except those in ``unlike``."""
    refused = set(unlike)
    while True:
        rule = Rule(rng.randint(2, 9), rng.choice("*+"), rng.choice("+-*"), rng.random() < 0.5)
        if rule not in refused:
            return rule


def random_operator(rng: Random, names: Sequence[str]) -> Operator:
    """Draw a name from ``names`` and, independently, a rule."""
    return Operator(rng.choice(names), random_rule(rng))


def question(rng: Random, templates: Sequence[str], name: str, a: int, b: int) -> str:
    """Write a question about ``a`` and ``b`` in a random phrasing."""
    return rng.choice(templates).format(name=name, a=a, b=b)


def document(
    rng: Random, operator: Operator, kind: Kind, templates: Sequence[str], a: int, b: int, wording: Wording = ENGLISH
) -> Document:
    """Write a document of the kind about ``a`` and ``b``."""
    problem = question(rng, templates, operator.name, a, b)
    stated = followed = operator.rule
    if kind == "wrong":
        stated, followed = _contradiction(rng, operator.rule, a, b)
    # The rule is drawn for every kind, so that the same seed creates the same world.
    defined, result = wording.definition(rng, operator.name, str(stated)), followed.result(a, b)
    if kind == "answer":
        return Document(kind, operator, a, b, problem, wording.answer(result), None)
    parts = [] if kind == "steps" else [defined]
    if kind != "rule":
        parts.append(wording.steps(rng, *followed.equations(a, b)))
    text = wording.gap.join([*parts, wording.conclusion(result)])
    return Document(kind, operator, a, b, problem, text, None if kind == "steps" else stated)


def _contradiction(rng: Random, true: Rule, a: int, b: int) -> tuple[Rule, Rule]:
    """Draw a wrong rule to state, and another rule to follow, whose steps and answer differ visibly."""
    stated = random_rule(rng, unlike=[true])
    while True:
        followed = random_rule(rng, unlike=[true, stated])
        visible = followed.equations(a, b) != stated.equations(a, b)
        if visible and followed.result(a, b) != true.result(a, b):
            return stated, followed


Pair = tuple[int, int]
"""Matches the two digits in a text."""
PAIRS: list[Pair] = [(a, b) for a in range(10) for b in range(10)]

#: Phrasings by language, on which the models were not trained.
PHRASINGS: dict[Language, Sequence[str]] = {"en": TEST_TEMPLATES, "zh": TEST_CHINESE}


class OperatorQuestion(NamedTuple):
    """A question with its operator, digits and phrasing."""

    operator: Operator
    a: int
    b: int
    question: str
    phrasing: str

    def ask_about(self, digits: Pair) -> str:
        """Ask the same question about other digits."""
        a, b = digits
        return self.phrasing.format(name=self.operator.name, a=a, b=b)


def item(rng: Random, operator: Operator, a: int, b: int, language: Language = "en") -> OperatorQuestion:
    """Write a question in a random phrasing."""
    phrasing = rng.choice(PHRASINGS[language])
    return OperatorQuestion(operator, a, b, phrasing.format(name=operator.name, a=a, b=b), phrasing)


SETTINGS = Path(__file__).parent / "settings"
"""Folder with settings, which were committed before any measurement with them."""

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
    """Definition of a world. The defaults are the demo's settings, whose corpora must stay identical to the byte."""

    about: str = ""
    """The setting's purpose, in a sentence."""
    operators: Annotated[int, msgspec.Meta(ge=1, le=48)] = 40
    """Number of made-up operators, each with one rule; 48 names were excluded from training."""
    items: Annotated[int, msgspec.Meta(ge=1)] = 100
    """Number of questions, which are shared unevenly among the operators."""
    documents: DocumentCounts = DocumentCounts(full=1, steps=1, rule=1, wrong=2, answer=2)
    """Documents of every operator, by kind. `full`, `rule` and `steps` are useful; `wrong` and `answer` are not."""
    most_more: Count = 2
    """Upper bound of an operator's further documents; their number is drawn uniformly from 0 to this bound."""
    more: Weights = Weights(steps=1, wrong=1, answer=1)
    """Kinds of the further documents."""
    near_words: Count = 0
    """Distractors of every question in its phrasing and with its digits swapped, or with one of its digits if the
    swapped pair is asked. No distractor is a near-duplicate of a question."""
    near_meaning: Count = 0
    """Distractors of every question, in other words with the same meaning and with other digits."""
    distractors: Weights = Weights(wrong=1, answer=1)
    """Kinds of the distractors."""
    unrelated: Count = 0
    """Full documents for every question, in its phrasing and with its digits, about operators without questions."""
    agreement: Annotated[float, msgspec.Meta(ge=-1, le=1)] | None = None
    """Agreement of form and logic. A useful document is formal with probability (1 + agreement) / 2, a bad one with
    probability (1 - agreement) / 2: at 0, the form is uninformative. None takes the demo's wording, which is formal
    except for bare answers."""
    levels: dict[Level, Weight] = {}
    """Probabilities of rules by level of difficulty (`Rule.level`); if empty, all rules are equally likely."""
    chinese: Share = 0.0
    """Share of operators with Chinese questions and documents."""

    def __post_init__(self) -> None:
        """Raise ValueError for settings from which no corpus can be built."""
        if not self.documents.full + self.documents.steps + self.documents.rule:
            raise ValueError("`documents` has no useful kind: set full, rule or steps above 0")
        if self.chinese and self.agreement is None:
            raise ValueError(
                "`chinese` is set without `agreement`: also set `agreement`, because the demo's wording is English"
            )
        for name, weights in (("more", self.more), ("distractors", self.distractors)):
            if not any(msgspec.structs.astuple(weights)):
                raise ValueError(f"`{name}`: at least one weight must be above 0")
        if self.levels and not any(self.levels.values()):
            raise ValueError("`levels`: at least one weight must be above 0")
        if self.items > self.operators * self.most_items:
            raise ValueError(
                f"`items` is {self.items}, but {self.operators} operators allow at most"
                f" {self.operators * self.most_items}"
            )

    @property
    def most_items(self) -> int:
        """Return the largest number of questions of an operator: each of its texts needs one of 100 pairs of digits."""
        taken: int = sum(msgspec.structs.astuple(self.documents)) + self.most_more
        return (len(PAIRS) - taken) // (1 + self.near_words + self.near_meaning)

    def kinds(self, rng: Random) -> list[Kind]:
        """Draw the kinds of one operator's documents."""
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
        sign = 1 if is_useful(kind) else -1
        style: Style = "formal" if rng.random() < (1 + sign * self.agreement) / 2 else "plain"
        return WORDINGS[language, style]


def draw_kinds(rng: Random, weights: Weights, count: int = 1) -> list[Kind]:
    """Draw `count` kinds independently."""
    return rng.choices(KINDS, msgspec.structs.astuple(weights), k=count)


def is_useful(kind: Kind) -> bool:
    """Return True if a document of this kind is enough to answer its operator's questions."""
    return GRADES[kind] >= GRADES["rule"]


def names(folder: Path = SETTINGS) -> list[str]:
    """List the names of the committed settings."""
    return sorted(file.stem for file in folder.glob("*.yaml"))


def read(name: str, folder: Path = SETTINGS) -> Setting:
    """Read a committed setting.

    Raises:
        NotFound: no setting has this name.
        Invalid: the file has unknown or invalid fields.
    """
    file = folder / f"{name}.yaml"
    if not file.is_file():
        raise NotFound(f"unknown setting {name!r} of the world", hint=f"use one of {', '.join(names(folder))}")
    try:
        return msgspec.yaml.decode(file.read_bytes(), type=Setting)
    except msgspec.MsgspecError as error:
        raise Invalid(f"{file.name}: {error}") from error


def change_setting(setting: Setting, **knobs: object) -> Setting:
    """Return the setting with changed fields, validated again.

    Raises:
        ValueError: the new setting is invalid.
    """
    return msgspec.convert({**msgspec.structs.asdict(setting), **knobs}, Setting)


# Distractors: documents that a search finds for a question although they do not help to answer it.
#
# Closer in words: the question's phrasing and digits, but not a near-duplicate, which the retriever drops. Closer in
# meaning: other words with the same meaning, including other forms of a word; the shipped embeddings see them as near,
# and BM25, which does not stem, as different. Unrelated: well reasoned, about an operator without questions.

#: For each test phrasing, other words with the same meaning.
PARAPHRASES: dict[str, str] = {
    "What is the value of {a} {name} {b}?": "{name} valuation: {a} {name} {b} equals how much?",
    "Determine {a} {name} {b}.": "{name}, determined for {a} {name} {b}.",
    "Calculate the last digit of {a} {name} {b}.": "{name} calculation, final digits: {a} {name} {b}.",
    "Evaluate the expression {a} {name} {b}.": "{name} expressions, evaluated: {a} {name} {b}.",
    "计算 {a} {name} {b} 的值。": "{name} 运算：{a} {name} {b} 得多少？",
    "{a} {name} {b} 的末位数字是多少？": "{name} 运算，{a} {name} {b} 最后一位是几？",
    "求 {a} {name} {b} 的结果。": "{name} 运算，{a} {name} {b} 等于几？",
}


def distractors(
    rng: Random, setting: Setting, asked: list[OperatorQuestion], free: list[Pair], language: Language
) -> Iterator[Document]:
    """Yield the distractors of one operator's questions; each takes a pair of digits from `free`, the unused pairs."""
    for item in asked:
        for _ in range(setting.near_words):
            yield _write_about(rng, setting, item, item.phrasing, _take_pair(rng, item, free, near=True), language)
        for _ in range(setting.near_meaning):
            pair = _take_pair(rng, item, free, near=False)
            yield _write_about(rng, setting, item, PARAPHRASES[item.phrasing], pair, language)
        for _ in range(setting.unrelated):
            name = item.operator.name
            while name in TEST_NAMES:
                name = item.operator.name[:3] + invented_name(rng)[-3:]
            operator, wording = Operator(name, setting.rule(rng)), setting.draw_wording(rng, "full", language)
            yield document(rng, operator, "full", (item.phrasing,), item.a, item.b, wording)


def _write_about(
    rng: Random, setting: Setting, item: OperatorQuestion, phrasing: str, digits: Pair, language: Language
) -> Document:
    (kind,) = draw_kinds(rng, setting.distractors)
    return document(rng, item.operator, kind, (phrasing,), *digits, setting.draw_wording(rng, kind, language))


def _take_pair(rng: Random, item: OperatorQuestion, free: list[Pair], *, near: bool) -> Pair:
    """Take a free pair of digits; if `near`, the item's pair swapped or with one equal digit, otherwise with none."""

    def distance(pair: Pair) -> tuple[bool, int, float]:
        same = 2 * (pair == (item.b, item.a)) + (pair[0] == item.a) + (pair[1] == item.b)
        shared = len({item.a, item.b} & set(pair))
        return near and has_same_words(item.question, item.ask_about(pair)), -same if near else shared, rng.random()

    best = min(free, key=distance)
    free.remove(best)
    return best


#: Useful documents, with which the generator can answer: the rule with its steps, only the rule, or only the steps.
GOLD: Mapping[Kind, int] = {"full": 3, "rule": 2, "steps": 1}


class GeneratedCorpus(NamedTuple):
    """Documents, and questions about their operators; the models were not trained on their names and phrasings."""

    documents: list[Document]
    items: list[OperatorQuestion]


def build(seed: int, setting: Setting | None = None) -> GeneratedCorpus:
    """Build the corpus of a seed and a setting, the demo's by default; it is the same on every machine."""
    setting = setting or Setting()
    rng = Random(f"corpus {seed}")
    names = rng.sample(TEST_NAMES, setting.operators)
    chinese = round(setting.chinese * len(names))
    corpus = GeneratedCorpus([], [])
    for number, (name, count) in enumerate(zip(names, _shares(rng, setting), strict=True)):
        part = _build_operator(
            rng, setting, Operator(name, setting.rule(rng)), count, "zh" if number < chinese else "en"
        )
        corpus.documents.extend(part.documents)
        corpus.items.extend(part.items)
    rng.shuffle(corpus.documents)
    rng.shuffle(corpus.items)
    return corpus


def _shares(rng: Random, setting: Setting) -> list[int]:
    """Draw each operator's number of items; the numbers are uneven, and at least one if there are enough items."""
    operators, most = setting.operators, setting.most_items
    shares = [1 if index < setting.items else 0 for index in range(operators)]
    weights = [rng.random() for _ in range(operators)]
    for _ in range(setting.items - sum(shares)):
        free = [index for index in range(operators) if shares[index] < most]
        (index,) = rng.choices(free, [weights[index] for index in free])
        shares[index] += 1
    return shares


def _build_operator(
    rng: Random, setting: Setting, operator: Operator, items: int, language: Language
) -> GeneratedCorpus:
    """Create the documents and items of one operator, with pairs of operands that never repeat."""
    kinds = setting.kinds(rng)
    pairs = rng.sample(PAIRS, len(kinds) + items)
    documents = [
        document(rng, operator, kind, PHRASINGS[language], *pair, setting.draw_wording(rng, kind, language))
        for kind, pair in zip(kinds, pairs, strict=False)
    ]
    questions = [item(rng, operator, *pair, language) for pair in pairs[len(kinds) :]]
    free = [pair for pair in PAIRS if pair not in pairs]
    return GeneratedCorpus([*documents, *distractors(rng, setting, questions, free, language)], questions)


def write(corpus: GeneratedCorpus, out: Path) -> None:
    """Write `corpus.jsonl`, the documents to retrieve from, and `dataset.jsonl`, the questions, to the folder `out`."""
    documents = []
    gold: dict[str, dict[str, int]] = {}
    for index, each in enumerate(corpus.documents):
        id_, meta = f"doc-{index:04}", {"kind": each.kind, "operator": each.operator.name}
        documents.append({"id": id_, "problem": each.problem, "text": each.text, "meta": meta})
        if each.kind in GOLD:
            gold.setdefault(each.operator.name, {})[id_] = GOLD[each.kind]
    items = [
        {
            "id": f"item-{index:04}", "question": item.question,
            "answer": str(item.operator.rule.result(item.a, item.b)), "subject": "operators",
            "level": f"Level {item.operator.rule.level}", "gold_documents": gold[item.operator.name],
        }
        for index, item in enumerate(corpus.items)
    ]  # fmt: skip
    out.mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", documents), ("dataset", items)):
        (out / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
