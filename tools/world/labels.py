"""Training samples of the label judge: sentences and replies that documents support, lack or deny, as metrics ask.

A sample is about the problem world (`mathrag_gate.demo.world`). The reason for a label is planted: a sentence is kept
as the documents have it, swapped for one that they lack, taken from elsewhere (foreign), or contradicts them.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from random import Random
from typing import Literal, NamedTuple

from mathrag_gate.demo import world
from shared.rag.answer_metrics import split_units
from shared.rag.prompts import Value, render, template
from shared.replies import Document
from tools.world import samples
from tools.world.samples import Sample

LabelKind = Literal["support", "sufficient", "addresses", "relevance"]
"""Templates of the four labels: S, F, A and R of the metrics."""
Domain = Literal["world", "mathematics"]
"""The subject of a sample; mathematics of random words and formulas trains to compare any text, for `support` only."""

#: Cases that may be planted, the label that each deserves, and how often training draws it.
CASES: dict[tuple[LabelKind, Domain], dict[str, tuple[int, int]]] = {
    ("support", "world"): {"kept": (3, 40), "swapped": (2, 15), "foreign": (2, 20), "contradicted": (1, 25)},
    ("support", "mathematics"): {"kept": (3, 50), "foreign": (2, 50)},
    ("sufficient", "world"): {"one": (3, 35), "several": (2, 35), "none": (1, 30)},
    ("addresses", "world"): {"all": (4, 30), "part": (3, 20), "other": (2, 35), "refusal": (1, 15)},
    ("relevance", "world"): {"full": (5, 20), "rule": (4, 20), "steps": (3, 15), "poor": (2, 15), "unrelated": (1, 30)},
}  # fmt: skip
KIND_WEIGHTS: dict[LabelKind, int] = {"support": 40, "sufficient": 20, "addresses": 20, "relevance": 20}
MATHEMATICS = 0.06
"""Share of the samples that are about mathematics."""
PROMPTS_PER_SAMPLE = {"served": 3, "brief": 6}
"""Labels of one training sample: all about the same documents, one after the other."""


@dataclass(frozen=True)
class Split:
    """Operators and phrasings that a sample may use, and how replies decline to answer."""

    operators: samples.Split
    refusals: Mapping[world.Language, Sequence[str]]


TRAIN = Split(
    samples.Split(world.TRAIN_NAMES, world.TRAIN_TEMPLATES, world.TRAIN_CHINESE),
    {
        "en": (
            "I do not know.", "I cannot answer this.", "The documents do not say.", "I am not able to tell.",
            "There is not enough information.", "No answer can be given.", "Sorry, I have no answer to this.",
            "It cannot be known from the documents.", "I do not know the answer to this question.",
        ),
        "zh": ("我不知道。", "文档没有说明。", "无法回答这个问题。", "信息不足。"),
    },
)  # fmt: skip
TEST = Split(
    samples.Split(world.TEST_NAMES, world.TEST_TEMPLATES, world.TEST_CHINESE),
    {
        "en": ("I cannot say.", "The documents do not tell.", "I do not have enough information to answer."),
        "zh": ("我无法回答。", "文档没有答案。"),
    },
)

_INSTRUCTIONS = re.compile(r"\A.*\n\n|^(?:\[\[|Reply with|只回答).*\n", re.MULTILINE)
"""The text of a template before the material, and about its labels."""


class LabelledPrompt(NamedTuple):
    """Values of a template's slots, and the label that they deserve."""

    values: Mapping[str, Value]
    label: int


def draw_sample(
    rng: Random, split: Split, *, brief: bool = False, support: float = 0.0, sufficient: float = 0.0
) -> Sample:
    """Draw a training sample: some labels of one kind about the same documents.

    Args:
        brief: leave the instructions out.
        support: share of the samples that are of `support` for any drawn kind.
        sufficient: the same of `sufficient`.
    """
    (kind,) = rng.choices(list(KIND_WEIGHTS), list(KIND_WEIGHTS.values()))
    domain: Domain = "mathematics" if rng.random() < MATHEMATICS else "world"
    if domain == "mathematics":
        kind = "support"
    elif support + sufficient > 0:
        share = rng.random()
        kind = "support" if share < support else "sufficient" if share < support + sufficient else kind
    language: world.Language = "zh" if domain == "world" and rng.random() < 2 * samples.CHINESE else "en"
    weights = {each: weight for each, (_, weight) in CASES[kind, domain].items()}
    cases = rng.choices(list(weights), list(weights.values()), k=PROMPTS_PER_SAMPLE["brief" if brief else "served"])
    return label_sample(rng, split, kind, domain, cases, language, brief=brief)


def label_sample(
    rng: Random,
    split: Split,
    kind: LabelKind,
    domain: Domain,
    cases: Sequence[str],
    language: world.Language = "en",
    *,
    brief: bool = False,
) -> Sample:
    """Ask for the labels of the planted cases in the same documents; only the first prompt is written in full."""
    name = kind if language == "en" else f"{kind}-zh"
    prompts = _WRITE[kind, domain](rng, split, language, cases)
    asked = {render(template(name), prompt.values): f"[[{prompt.label}]]" for prompt in prompts}  # each prompt once
    texts, replies = list(asked), list(asked.values())
    if brief:
        texts = [_INSTRUCTIONS.sub("", text).strip() for text in texts]
    lines = [text.split("\n") for text in texts]
    shared = sum(1 for _ in takewhile(lambda line: len(set(line)) == 1, zip(*lines, strict=False)))
    more = [("\n".join(each[shared:]).lstrip("\n"), reply) for each, reply in zip(lines, replies, strict=True)]
    return Sample(texts[0], replies[0], replies[0], tuple(more[1:]))


# The problem world: operators, and documents that state, follow or break their rules.

_RESULT = re.compile(r"(?:boxed\{|is |是 )(\d)\b")


class Material:
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


def _world_support(rng: Random, split: Split, language: world.Language, cases: Sequence[str]) -> list[LabelledPrompt]:
    kinds = _draw_kinds(rng)
    kinds[0].append(rng.choice(("full", "rule", "wrong")))
    material = Material(rng, split, language, kinds)
    question = material.ask(material.operators[0])
    prompts = []
    for case in cases:
        sentence = _write_sentence(rng, material, case)
        values: dict[str, Value] = {"question": question, "documents": material.documents, "sentence": sentence}
        if rng.random() < 0.3:
            before = rng.choice(split_units(rng.choice(material.documents).text)).text
            values["before"] = f"{'前一句：' if language == 'zh' else 'Sentence before: '}{before}\n"
        prompts.append(LabelledPrompt(values, CASES["support", "world"][case][0]))
    return prompts


def _write_sentence(rng: Random, material: Material, case: str) -> str:
    """Write a sentence of a reply: a rule, an equation or a result."""
    if case == "kept" and rng.random() < 0.35:  # unchanged
        return rng.choice(split_units(rng.choice(material.documents).text)).text
    text = " ".join(each.text for each in material.documents)
    equations, results = re.findall(r"\d[-+*]\d=\d", text), _RESULT.findall(text)
    # How often a sentence is about a rule, an equation or a result: only statements of documents can be contradicted.
    weights = {"kept": (45, 30, 25), "swapped": (0, 75, 25), "foreign": (1, 0, 0), "contradicted": (65, 35, 0)}[case]
    (about,) = rng.choices(("rule", "equation", "result"), weights)
    if about == "equation" and equations:
        return f"{_write_equation(rng, equations, case)}{'。' if material.language == 'zh' else '.'}"
    if about == "rule" or case == "contradicted":
        operator, said = rng.choice([(each.operator, str(each.stated)) for each in material.made if each.stated])
        while case == "contradicted" and said in material.rules(operator):
            said = str(world.random_rule(rng))
        named = material.operators[-1] if case == "foreign" else operator
        return material.wording.definition(rng, named.name, said)
    other_digits = sorted({*"0123456789"} - {*results})
    return material.wording.conclusion(int(rng.choice(other_digits if case == "swapped" else results)))


def _write_equation(rng: Random, equations: Sequence[str], case: str) -> str:
    """Take an equation of the documents (kept), give it another result (contradicted), or another left side."""
    said, stated = rng.choice(equations), {equation[:3] for equation in equations}
    while case == "contradicted" and said in equations:
        said = said[:-1] + str(rng.randrange(10))
    while case == "swapped" and said[:3] in stated:
        said = str(rng.randrange(10)) + said[1:]
    return said


def _world_sufficient(
    rng: Random, split: Split, language: world.Language, cases: Sequence[str]
) -> list[LabelledPrompt]:
    stating: tuple[world.Kind, ...] = ("full", "rule", "wrong")
    # One rule, maybe two, none, and other documents.
    kinds: list[list[world.Kind]] = [
        [rng.choice(stating)],
        ["wrong", rng.choice(stating)],
        [rng.choice(("steps", "answer"))],
    ]
    if rng.random() < 0.5:
        kinds[0].append(rng.choice(("steps", "answer")))
    present = {"one": 0, "several": 1, "none": 2}
    wanted = sorted({present[case] for case in cases})
    material = Material(rng, split, language, [kinds[at] for at in wanted])
    prompts = []
    for case in cases:
        operator = material.operators[wanted.index(present[case])]
        if case == "none" and rng.random() < 0.5:
            operator = material.operators[-1]
        label = {0: 1, 1: 3}.get(len(material.rules(operator)), 2)
        prompts.append(LabelledPrompt({"question": material.ask(operator), "documents": material.documents}, label))
    return prompts


def _world_addresses(rng: Random, split: Split, language: world.Language, cases: Sequence[str]) -> list[LabelledPrompt]:
    material = Material(rng, split, language, [["full"], ["full"]])
    phrasings = split.operators.phrasings(language)
    prompts = []
    for case in cases:
        first, second, other = rng.sample(material.operators, 3)
        a, b, c, d, e, f = (rng.randrange(10) for _ in range(6))
        both = case == "part" or rng.random() < 0.4
        joined = f"{b}{rng.choice(samples.JOINERS)}{c} {second.name} {d}" if both else b
        question = rng.choice(phrasings).format(name=first.name, a=a, b=joined)
        replies = [_answer(rng, first, a, b), _answer(rng, second, c, d), _answer(rng, other, e, f)]
        reply = {
            "all": " ".join(replies[: 1 + both]),
            "part": rng.choice(replies[:2]),
            "other": replies[2],
            "refusal": rng.choice(split.refusals[language]),
        }[case]
        prompts.append(LabelledPrompt({"question": question, "reply": reply}, CASES["addresses", "world"][case][0]))
    return prompts


def _answer(rng: Random, operator: world.Operator, a: int, b: int) -> str:
    """Write a reply that names its operator: with the rule, or the result alone."""
    if rng.random() < 0.6:
        return f"a {operator.name} b = {operator.rule}. {samples.solution(operator.rule, a, b)}"
    return f"{a} {operator.name} {b} = {operator.rule.result(a, b)}."


def _world_relevance(rng: Random, split: Split, language: world.Language, cases: Sequence[str]) -> list[LabelledPrompt]:
    # The grades that `world-judge` gives: 5 states the rule and follows it, 4 states it, 3 follows it, 2 is useless.
    graded: dict[str, Sequence[world.Kind]] = {
        "full": ("full",), "rule": ("rule",), "steps": ("steps",), "poor": ("wrong", "answer"),
        "unrelated": world.KINDS,
    }  # fmt: skip
    kinds = [rng.choice(graded[case]) for case in cases]
    material = Material(rng, split, language, [[]])
    question = material.ask(material.operators[0])
    prompts = []
    for case, kind in zip(cases, kinds, strict=True):
        made = material.write(material.operators[case == "unrelated"], kind)
        document = Document(problem=made.problem, text=made.text)
        prompts.append(
            LabelledPrompt({"question": question, "document": document}, CASES["relevance", "world"][case][0])
        )
    return prompts


def _mathematics_support(rng: Random, _: Split, __: world.Language, cases: Sequence[str]) -> list[LabelledPrompt]:
    problems = [samples.foreign_sentence(rng) for _ in range(rng.choice((1, 2, 3)))]
    told = [[samples.foreign_sentence(rng) for _ in range(rng.choice((1, 2, 3)))] for _ in problems]
    documents = [Document(problem=problem, text=" ".join(text)) for problem, text in zip(problems, told, strict=True)]
    question = samples.foreign_sentence(rng)
    return [
        LabelledPrompt(
            {
                "question": question,
                "documents": documents,
                "sentence": rng.choice(rng.choice(told)) if case == "kept" else samples.foreign_sentence(rng),
            },
            CASES["support", "mathematics"][case][0],
        )
        for case in cases
    ]


_WRITE: Mapping[
    tuple[LabelKind, Domain], Callable[[Random, Split, world.Language, Sequence[str]], list[LabelledPrompt]]
] = {
    ("support", "world"): _world_support,
    ("support", "mathematics"): _mathematics_support,
    ("sufficient", "world"): _world_sufficient,
    ("addresses", "world"): _world_addresses,
    ("relevance", "world"): _world_relevance,
}
