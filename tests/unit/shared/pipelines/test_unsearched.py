"""A question without a vector: what is found by words is taken, and the trace says why there is nothing else."""

from typing import Any

import pytest

from shared.calls import Call, Judge, Rerank, Retrieve
from shared.params import CriticParams, Params
from shared.pipelines import registry
from shared.replies import Document, Failure, FailureKind, Generated, Hit, Rated, Reply, Retrieved
from shared.runtime.advance import Replay
from shared.samples import Item, Outcome, Sample

WORDS = Document(problem="๑ บวก ๑ คืออะไร", text="so \\boxed{2}")
UNSEARCHED_LIBRARY = {WORDS.hash: WORDS}
QUESTION = "หนึ่งบวกหนึ่งเท่ากับเท่าไร"
REASON = "the embedder knows no token"


def ended(pipeline: str, **params: Any) -> Outcome:
    sample = Sample(item=Item(ordinal=0, question=QUESTION))
    replay = Replay(registry.get(pipeline).run(sample, Params(**params), UNSEARCHED_LIBRARY))
    while replay.calls:
        replay.answer([reply(call) for call in replay.calls])
    assert replay.result is not None, replay.failure
    return replay.result


def reply(call: Call) -> Reply:
    match call:
        case Retrieve(index="dense"):
            return Retrieved(hits=(), reason=REASON)
        case Retrieve():
            return Retrieved(hits=(Hit(document=WORDS.hash, rank=1, score=2.5),))
        case Judge():
            return Rated(rating=5, text="[[5]]")
        case Rerank():
            return Failure(kind=FailureKind.NOT_CONFIGURED)
        case _:
            return Generated(text="\\boxed{2}")


@pytest.mark.parametrize(
    ("pipeline", "found"),
    [
        ("dense", ()),
        ("hyde", ()),
        ("hybrid", (WORDS.hash,)),
        ("crag", (WORDS.hash,)),
        ("critic-loop", (WORDS.hash,)),
    ],
)
def test_a_question_without_a_vector_is_answered_from_its_words(pipeline: str, found: tuple[str, ...]) -> None:
    outcome = ended(pipeline, critic=CriticParams(attempts=1))
    assert outcome.context == found
    [without] = [each for each in outcome.trace.decisions if each.fallback == "no_vector"]
    assert (without.stage, without.detail) == ("retrieve", {"said": REASON})
    assert without.action in ("without dense", "without original dense")


def test_every_wording_without_a_vector_is_named() -> None:
    outcome = ended("enhanced")
    assert [each.action for each in outcome.trace.decisions if each.fallback == "no_vector"][:1] == [
        "without original dense"
    ]
    assert outcome.context == (WORDS.hash,)
