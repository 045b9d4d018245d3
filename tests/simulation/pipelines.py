"""Small pipelines over two models, with as many rounds as their names say; samples and jobs share calls."""

import zlib
from collections.abc import Sequence

from shared.calls import Generate, Judge, Retrieve
from shared.params import Params
from shared.pipelines import registry
from shared.rag.provenance import make_outcome
from shared.replies import Document, Rated, require
from shared.samples import GateDecision, Item, Library, PrepareSteps, Sample, Steps, Strategy

POISON = "kills the server"
"""A model server that is given such a prompt dies of it."""
RUBRIC = "reasoning-quality"
DOCUMENTS = tuple(Document(problem=f"What is {n} plus {n}?", text=f"It is \\boxed{{{2 * n}}}.") for n in range(6))
HASHES = tuple(document.hash for document in DOCUMENTS)


def _alternate(question: str, documents: Sequence[str], rounds: int) -> Steps:
    """Judge, then generate, and again."""
    first = zlib.crc32(question.encode())
    for turn in range(rounds):
        asked = [documents[(first + turn + n) % len(documents)] for n in (0, 1)]
        replies = yield [Judge(rubric=RUBRIC, document=document) for document in asked]
        ratings = [reply.rating for reply in replies if isinstance(reply, Rated)]
        generated = require((yield Generate(template="cot", question=f"{question} {turn} {ratings}")))
    return make_outcome(generated)


def one_round(sample: Sample, _params: Params, _library: Library) -> Steps:
    """A judgement and an answer."""
    return (yield from _alternate(sample.question, HASHES, 1))


def two_rounds(sample: Sample, _params: Params, _library: Library) -> Steps:
    """Back to the judge once."""
    return (yield from _alternate(sample.question, HASHES, 2))


def three_rounds(sample: Sample, _params: Params, _library: Library) -> Steps:
    """Back to the judge twice."""
    return (yield from _alternate(sample.question, HASHES, 3))


def searching(sample: Sample, _params: Params, _library: Library) -> Steps:
    """Begins with a call that needs no device."""
    found = require((yield Retrieve(question=sample.question, index="sparse", k=3)))
    return (yield from _alternate(sample.question, [hit.document for hit in found.hits], 1))


def prepare(items: Sequence[Item], params: Params, _library: Library) -> PrepareSteps:
    """A calibration that asks the judge once."""
    yield Judge(rubric=RUBRIC, document=HASHES[len(items) % len(HASHES)])
    return GateDecision(
        strategy=Strategy.RULES, reason="simulated", tau=params.gate.tau, rho=None, low=None, high=None, spearman=None,
        documents=(), rule_scores=(), judge_scores=(), asked=1, unparsed=0,
    )  # fmt: skip


PIPELINES = {
    "one-round": registry.Registered("one-round", one_round, None),
    "two-rounds": registry.Registered("two-rounds", two_rounds, None),
    "three-rounds": registry.Registered("three-rounds", three_rounds, None),
    "searching": registry.Registered("searching", searching, None),
    "prepared": registry.Registered("prepared", one_round, prepare),
}


def install() -> None:
    """Register them; again is harmless."""
    registry.names()
    registry.registered.update(PIPELINES)
