"""Classify what a question wants by rules (seed document 001), and weight the lists that suit it."""

import re
from typing import Literal

from shared.contracts.params import FusionParams

Intent = Literal["prove", "compare", "explain", "define", "calculate", "other"]

_RULES: tuple[tuple[Intent, re.Pattern[str]], ...] = (
    ("prove", re.compile(r"\b(?:prove|proof|show that|disprove|verify that)\b|证明|求证|证出", re.IGNORECASE)),
    (
        "compare",
        re.compile(
            # "The positive difference between the roots" is a number, and so is that of whatever else is counted.
            r"\bthe (?:main |key )?differences? between (?!(?:the|two|these|those|its)\b)[a-z -]+ and [a-z -]+\??\s*\Z"
            r"|\bdifferences between\b|\bhow (?:do|does|is|are)\b.{1,80}\bdiffer(?:ent)? from\b"
            r"|(?:\A|[.?!;:,]\s*|\b(?:and|please|to)\s)compare\b|\b(?:comparison|versus|vs\.?)\b"
            r"|\b(?:which|who) (?:is|has|one is) (?:the )?(?:larger|greater|smaller|bigger|more|less)\b(?! than\b)"
            r"|比较|区别|有何不同|有什么不同|哪个更|谁更",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
    (
        "explain",
        re.compile(
            r"\b(?:explain|why|how (?:do|does|can)|describe|intuition)\b|为什么|解释|说明|原理|怎么理解", re.IGNORECASE
        ),
    ),
    (
        "calculate",
        re.compile(
            r"\b(?:value|sum|number|product|probability|area|volume|remainder|perimeter|distance|length) of\b"
            r"|\bdifference between\b",
            re.IGNORECASE,
        ),
    ),
    (
        "define",
        re.compile(
            r"\b(?:define|definition of|meaning of|what does .{1,60} mean)\b|定义|的概念|什么是|是什么意思|指的是什么"
            r"|\Awhat (?:is|are) (?:an? )?[a-z' -]+\??\Z",
            re.IGNORECASE,
        ),
    ),
    (
        "calculate",
        re.compile(
            r"\b(?:calculate|compute|evaluate|find|solve|simplify|determine|how (?:many|much|far|long|old))\b"
            r"|\d|计算|求|多少|几|等于|解方程|化简",
            re.IGNORECASE,
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
    """Return the intent of the first rule that matches `question`; `other` if none does."""
    for name, pattern in _RULES:
        if pattern.search(question):
            return name
    return "other"


def choose_weights(wanted: Intent, params: FusionParams) -> tuple[float, float]:
    """Return the weights of dense and sparse lists: by intent if `fusion.by_intent` is set, else the job's own."""
    if params.by_intent and wanted in CONCEPTS:
        return CONCEPT_WEIGHTS
    if params.by_intent and wanted in EXACT:
        return EXACT_WEIGHTS
    return (params.dense, params.sparse)
