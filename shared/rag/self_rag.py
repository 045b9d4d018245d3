"""Self-RAG (Asai et al. 2024): interpret a model's reflection tokens by their log-probabilities.

A probability is exp(log-probability); a token that is not among the alternatives has probability 0. (The authors' short
form divides log-probabilities where it decides whether to retrieve; the paper's formula is implemented.)
"""

import math
import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from shared.params import SelfRagParams
from shared.rag.grading import Extract, extract_mathematics
from shared.replies import Document, Generated, SampleFailed, Token

RETRIEVAL, NO_RETRIEVAL = "[Retrieval]", "[No Retrieval]"
RELEVANT, IRRELEVANT = "[Relevant]", "[Irrelevant]"
SUPPORT: Mapping[str, float] = {
    "[Fully supported]": 1.0, "[Partially supported]": 0.5, "[No support / Contradictory]": 0.0,
}  # fmt: skip
UTILITY: Mapping[str, float] = {f"[Utility:{grade}]": (grade - 3) / 2 for grade in range(1, 6)}
"""Weights of the grades 1 to 5: -1, -0.5, 0, 0.5, 1."""
REFLECTION = frozenset(
    {RETRIEVAL, NO_RETRIEVAL, "[Continue to Use Evidence]", RELEVANT, IRRELEVANT, *SUPPORT, *UTILITY}
)
_EVIDENCE = re.compile(r"<paragraph>.*?(?:</paragraph>|$)", re.DOTALL)
_MARKS = re.compile("|".join(map(re.escape, sorted(REFLECTION | {"<paragraph>", "</paragraph>", "</s>"}))))


class PassageScores(NamedTuple):
    """The scores of one passage for the answer that was written after it."""

    relevance: float
    """p(Relevant) among both, at the first token."""
    support: float
    """Expected support at the first such token; 0 without one."""
    utility: float
    """Expected utility in [-1, 1] at the first such token; 0 without one."""
    sequence: float
    """exp of the mean log-probability of all tokens."""
    total: float


def require_reflection(generated: Generated) -> Generated:
    """Return `generated` if its model reflects.

    Raises:
        SampleFailed: its server gave no log-probabilities, or its model has no reflection tokens.
    """
    if not generated.tokens:
        raise SampleFailed("no_log_probabilities", "the generator's server gives no log-probabilities of tokens")
    if not any(REFLECTION & _alternatives(token).keys() for token in generated.tokens):
        raise SampleFailed("no_reflection_tokens", "the generator is no Self-RAG model, or its server hides the tokens")
    return generated


def retrieval_probability(first: Token) -> float | None:
    """Return p([Retrieval]) against [No Retrieval]; None if neither token is among the alternatives."""
    wanted, unwanted = token_probability(first, RETRIEVAL), token_probability(first, NO_RETRIEVAL)
    return wanted / (wanted + unwanted) if wanted + unwanted else None


def make_passage(document: Document) -> str:
    """Write a document as evidence in the model's format; marks of the model inside the text are removed."""
    text = f"{document.problem}\n{document.text}" if document.problem else document.text
    return f"{RETRIEVAL}<paragraph>{_MARKS.sub('', text)}</paragraph>"


def extract_answer(text: str) -> str:
    """Return the text for the asker, without evidence and reflection tokens."""
    return _MARKS.sub("", _EVIDENCE.sub("", text)).strip()


def score_passage(tokens: Sequence[Token], params: SelfRagParams) -> PassageScores:
    """Score a passage by the answer after it (section 3.3; weights 1, 1 and 0.5 in the authors' README)."""
    relevance = _compute_expected_weight(next(iter(tokens), None), {RELEVANT: 1.0, IRRELEVANT: 0.0})
    support = _compute_expected_weight(_find_first(tokens, SUPPORT), SUPPORT)
    utility = _compute_expected_weight(_find_first(tokens, UTILITY), UTILITY)
    sequence = compute_mean_probability(tokens) if tokens else 0.0
    total = params.relevance * relevance + params.support * support + params.utility * utility
    return PassageScores(relevance, support, utility, sequence, total + (sequence if params.sequence else 0.0))


def compute_mean_probability(tokens: Sequence[Token]) -> float:
    """Return the exp of the mean log-probability of at least one token: a text's probability independent of its
    length."""
    return math.exp(math.fsum(token.logprob for token in tokens) / len(tokens))


def choose_best(
    totals: Sequence[float], texts: Sequence[str], params: SelfRagParams, extract: Extract = extract_mathematics
) -> int:
    """Choose the path of the answer: the best, or the best of those with the common answer of the largest sum.

    Of paths as good as each other it is the first. A path without an answer shares it with no other.
    """
    weights = list(totals)
    if params.answer == "sum":
        found = [extract(extract_answer(text))[0] or path for path, text in enumerate(texts)]
        weights = [
            math.fsum(total for said, total in zip(found, totals, strict=True) if said == answer) for answer in found
        ]
    return max(range(len(totals)), key=lambda path: (weights[path], totals[path], -path))


def token_probability(token: Token, wanted: str) -> float:
    """Return the probability of `wanted` at the place of `token`, ignoring blanks; 0 if it is not among the
    alternatives."""
    return _alternatives(token).get(wanted, 0.0)


def _alternatives(token: Token) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for text, logprob in {**token.top, token.text: token.logprob}.items():
        found[text.strip()] += math.exp(logprob)
    return found


def _find_first(tokens: Sequence[Token], wanted: Collection[str]) -> Token | None:
    return next((token for token in tokens if token.text.strip() in wanted), None)


def _compute_expected_weight(token: Token | None, weights: Mapping[str, float]) -> float:
    """Return the mean weight by probability at the token's place; 0 without a token."""
    if token is None:
        return 0.0
    shares = {wanted: token_probability(token, wanted) for wanted in weights}
    whole = math.fsum(shares.values())
    return math.fsum(weights[wanted] * share for wanted, share in shares.items()) / whole if whole else 0.0
