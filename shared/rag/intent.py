"""Classify what a question wants by rules (seed document 001), and weight the lists that suit it."""

import re
from typing import Literal

from shared.params import FusionParams

Intent = Literal["prove", "compare", "explain", "define", "calculate", "other"]

_ASIDE = re.compile(r"《[^《》]*》|\b(?:[A-Z][A-Za-z]+-?\d+(?:\.\d+)*|[A-Z]\d[A-Z])\b", re.ASCII)
"""Titles, and names with a number, such as GPT-4, CO2 and H2O: what they say is not what is asked."""


def _compile(pattern: str) -> re.Pattern[str]:
    """Compile a rule. With ASCII letters alone there is a boundary of a word in `compare一下`, too."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL | re.ASCII)


_RULES: tuple[tuple[Intent, re.Pattern[str]], ...] = (
    ("prove", _compile(r"\b(?:prove|proof|show that|disprove|verify that)\b|[证證]明|求[证證]|[证證]出")),
    (
        "compare",
        _compile(
            # "The positive difference between the roots" is a number, and so is that of whatever else is counted.
            r"\bthe (?:main |key )?differences? between (?!(?:the|two|these|those|its)\b)"
            r"[a-z -]{1,80} and [a-z -]{1,80}\??\s*\Z"
            r"|\bdifferences between\b|\bhow (?:do|does|is|are)\b.{1,80}\bdiffer(?:ent)? from\b"
            r"|(?:\A|[.?!;:,]\s*|\b(?:and|please|to)\s)compare\b|\b(?:comparison|versus|vs\.?)(?![a-z])"
            r"|\b(?:which|who) (?:is|has|one is) (?:the )?(?:larger|greater|smaller|bigger|more|less)\b(?! than\b)"
            r"|比[较較]|[对對]比|[区區][别別]|差[异異别別]|[异異]同|有(?:何|什[么麼]|哪些)不同|不同之[处處]"
            r"|哪[个個](?:更|好)|[谁誰]更"
        ),
    ),
    (
        "explain",
        _compile(
            r"\b(?:explain|why|how (?:do|does|can)|describe|intuition)\b|(?:\A|[.?!;:,]\s*)how to\b"
            r"|[为為](?:什[么麼]|何|啥)|(?<!不管)(?<!不[论論])(?<![无無][论論])(?:如何|怎[么麼样樣])"
            r"|解[释釋]|[说說]明|介[绍紹]|原理|原因|[优優]缺[点點]"
        ),
    ),
    (
        "calculate",
        _compile(
            r"\b(?:value|sum|number|product|probability|area|volume|remainder|perimeter|distance|length) of\b"
            r"|\bdifference between\b"
            r"|的(?:值|和|差|[积積]|商|余[数數]|面[积積]|[体體][积積]|周[长長]|概率|[长長]度|距[离離]|[个個][数數])"
            r"(?:各|分[别別])?是什[么麼]"
        ),
    ),
    (
        "define",
        _compile(
            r"\b(?:define|definition of|meaning of|what does .{1,60} (?:mean|stand for))\b|定[义義]|的概念"
            r"|什[么麼](?:是|叫|意思)|何[谓謂]|指的是什[么麼]|\A\D*是(?:什[么麼]|啥)"
            r"|\Awhat(?: (?:is|are)|'s) (?:an? )?[a-z' -]+\??\Z"
        ),
    ),
    (
        "explain",
        _compile(
            r"\b(?:latest|recent) (?:advances|developments|progress|research|trends)\b|\bstate of the art\b"
            r"|最新[^，。？]{0,12}(?:[进進]展|[动動][态態]|研究|[技艺藝][术術]|[趋趨][势勢]|[发發]展|成果|突破|方法)"
        ),
    ),
    (
        "calculate",
        _compile(
            r"\b(?:calculate|compute|evaluate|find|solve|simplify|determine|how (?:many|much|far|long|old))\b"
            r"|\d|[计計]算|求|多少|[几幾](?!何)|等[于於]|解方程|化[简簡]"
        ),
    ),
)
CONCEPTS = frozenset({"define", "explain", "compare"})
CONCEPT_WEIGHTS = (0.7, 0.3)
"""(dense, sparse) for questions about concepts, which vectors find better (001's weights; 003's table of uses)."""
EXACT = frozenset({"calculate", "prove"})
EXACT_WEIGHTS = (0.3, 0.7)
"""For those that hang on exact terms and numbers: the same, turned round. Neither is measured; off by default."""


def classify_intent(question: str) -> Intent:
    """Return the intent of the first rule that matches `question`, in English or Chinese; `other` if none does.

    "What is the area of ...?" asks for a number, "What is RAG?" for a definition; so do 面积是什么 and RAG是什么, where
    no digit stands before it. A question about the latest of something wants it described.
    """
    asked = _ASIDE.sub("X", question)
    for name, pattern in _RULES:
        if pattern.search(asked):
            return name
    return "other"


def choose_weights(wanted: Intent, params: FusionParams) -> tuple[float, float]:
    """Return the weights of dense and sparse lists: by intent if `fusion.by_intent` is set, else the job's own."""
    if params.by_intent and wanted in CONCEPTS:
        return CONCEPT_WEIGHTS
    if params.by_intent and wanted in EXACT:
        return EXACT_WEIGHTS
    return (params.dense, params.sparse)
