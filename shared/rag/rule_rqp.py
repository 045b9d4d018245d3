r"""Rule-RQP: how well a text is reasoned, judged by its form alone (the MathRAG-Gate paper, section 3.2.1).

S_rule = length * (0.3 logic + 0.3 structure + 0.25 math + 0.15 box), every part in [0, 1]. The weights are the
paper's. The paper names a normalisation and a length penalty without giving them; these are ours:

- logic: min(1, connectives / 3); structure: min(1, markers / 2): one more never lowers the score
- math: min(1, share of mathematical tokens / 0.5); MATH's median solution has a share of 0.6, a plain sentence 0.2
- box: 1 if `\boxed{` occurs, else 0
- length: below 20 tokens, tokens / 20; above 400 (MATH's 95th percentile), 400 / tokens but never below 0.8
"""

import re
from functools import lru_cache

import msgspec

from shared.replies import Document

LOGIC_WEIGHT = 0.3
STRUCTURE_WEIGHT = 0.3
MATH_WEIGHT = 0.25
BOX_WEIGHT = 0.15
LOGIC_SATURATION = 3
STRUCTURE_SATURATION = 2
MATH_SATURATION = 0.5
SHORT_TOKENS = 20
LONG_TOKENS = 400
LONG_FLOOR = 0.8

_CONNECTIVE = re.compile(
    r"\\(?:implies|iff|Rightarrow|Longrightarrow|therefore|because)(?![A-Za-z])"
    r"|\b(?:therefore|thus|hence|since|because|so\s+that|implies|consequently|it\s+follows)\b"
    r"|[⇒⟹∴∵]|因为|由于|所以|因此|从而",
    re.IGNORECASE,
)
_MARKER = re.compile(
    r"\bstep\s+\d|\\begin\{|\\item(?![A-Za-z])|^[ \t]*\(?\d{1,2}[.)]\s|第[一二三四五六七八九十\d]{1,3}步",
    re.IGNORECASE | re.MULTILINE,
)
_TOKEN = re.compile(r"\\[A-Za-z]+|[A-Za-z]+|\d+(?:\.\d+)?|[一-鿿]|[=+\-*/^<>_×÷≤≥]")
_MATHEMATICAL = re.compile(r"\\[A-Za-z]|[\d=+\-*/^<>_×÷≤≥]|[B-HJ-Zb-z]\Z")
_BOX = re.compile(r"\\boxed\s*\{")


class RuleScore(msgspec.Struct, frozen=True, kw_only=True):
    """The four features, the length factor, and the score they make; all in [0, 1]."""

    logic: float
    structure: float
    math: float
    box: float
    length: float
    score: float

    @property
    def features(self) -> dict[str, float]:
        """Return everything but the score, by name, for the trace."""
        return {name: getattr(self, name) for name in ("logic", "structure", "math", "box", "length")}


def score_text(text: str) -> RuleScore:
    """Score the reasoning in `text` (a worked solution without its problem); the empty text scores 0."""
    tokens = _TOKEN.findall(text)
    logic = _saturate(_count(_CONNECTIVE, text), LOGIC_SATURATION)
    structure = _saturate(_count(_MARKER, text), STRUCTURE_SATURATION)
    math = _math_density(tokens)
    box = float(bool(_BOX.search(text)))
    length = _length_factor(len(tokens))
    form = LOGIC_WEIGHT * logic + STRUCTURE_WEIGHT * structure + MATH_WEIGHT * math + BOX_WEIGHT * box
    return RuleScore(logic=logic, structure=structure, math=math, box=box, length=length, score=min(1.0, length * form))


@lru_cache(maxsize=16384)
def score_document(document: Document) -> RuleScore:
    """Return `rule_score` of a document, cached by content because replays score the same documents again."""
    return score_text(document.text)


def _count(pattern: re.Pattern[str], text: str) -> int:
    return sum(1 for _ in pattern.finditer(text))


def _saturate(count: int, full: int) -> float:
    return min(1.0, count / full)


def _math_density(tokens: list[str]) -> float:
    if not tokens:
        return 0.0
    share = sum(1 for token in tokens if _MATHEMATICAL.match(token)) / len(tokens)
    return min(1.0, share / MATH_SATURATION)


def _length_factor(tokens: int) -> float:
    if tokens < SHORT_TOKENS:
        return tokens / SHORT_TOKENS
    return max(LONG_FLOOR, min(1.0, LONG_TOKENS / tokens))
