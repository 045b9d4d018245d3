"""A pipeline's version stands for what it asks and answers, which is recorded."""

import json
import math
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from shared import canonical
from shared.calls import (
    Call,
    Converse,
    Embed,
    Estimate,
    FindRules,
    Generate,
    Grade,
    Judge,
    Mine,
    Rerank,
    Retrieve,
    Verify,
    Write,
)
from shared.params import Params
from shared.pipelines import registry
from shared.pipelines.binding import SampleBinder
from shared.rag.self_rag import RETRIEVAL
from shared.replies import (
    Atom,
    Document,
    Embedded,
    Estimated,
    FoundRules,
    Generated,
    Graded,
    Hit,
    Mined,
    NumberedRule,
    Rated,
    Reply,
    Retrieved,
    Rule,
    Scored,
    Token,
    Verified,
)
from shared.runtime.advance import JobSpec, Replay
from shared.runtime.price import make_placeholder_job
from shared.samples import Item
from tests import golden
from tests.unit.shared.pipelines.test_pipeline_reads import VARIANTS

DOCUMENTS = [
    Document(
        problem=f"What is {n} times {n}?" if n % 3 else "",
        text=f"Step 1. Since x = {n}, x * x = {n * n}. " + "So we go on. " * (n % 4) + rf"Therefore \boxed{{{n * n}}}.",
    )
    for n in range(60)
]
LIBRARY = {document.hash: document for document in DOCUMENTS}
ITEMS = [
    Item(ordinal=0, question="What is the sum of 2 and 3?", gold="5"),
    Item(ordinal=1, question="2 加 3 等于多少？", gold="5"),
]
MOST_ROUNDS = 30


def reply(call: Call) -> Reply:
    number = int.from_bytes(canonical.digest(call)[:4])
    match call:
        case Retrieve():
            chosen = [DOCUMENTS[(number + 7 * step) % 60] for step in range(call.skip, call.skip + call.k)]
            return Retrieved(
                hits=tuple(
                    Hit(document=each.hash, rank=rank, score=1 / rank)
                    for rank, each in enumerate(chosen, call.skip + 1)
                )
            )
        case Rerank():
            return Scored(scores=tuple((number + place) % 10 / 10 for place in range(len(call.documents))))
        case Judge():
            return Rated(rating=number % 5 + 1, text=f"[[{number % 5 + 1}]]")
        case Generate() if call.logprobs:
            return reflect(number)
        case Generate() | Converse():
            return Generated(text=rf"So \boxed{{{number % 7}}}." if number % 5 else "I cannot say.", truncated=False)
        case Write():
            return Generated(text="\n".join(f"What is {number % 20 + line} plus {line}?" for line in range(3)))
        case _:
            return measure(call, number)


def reflect(number: int) -> Generated:
    """What a Self-RAG model writes that wants passages."""
    likely = math.log(0.5 + number % 100 / 200)
    said = [(RETRIEVAL, "[No Retrieval]"), ("[Relevant]", "[Irrelevant]"), ("[Utility:5]", "[Utility:1]")]
    tokens = tuple(Token(text=yes, logprob=likely, top={yes: likely, no: math.log(0.25)}) for yes, no in said)
    return Generated(text=rf"So \boxed{{{number % 7}}}.[Utility:5]", tokens=tokens)


def measure(call: Embed | Verify | Estimate | FindRules | Mine | Grade, number: int) -> Reply:
    match call:
        case Embed():
            return Embedded(vector=b"")
        case Verify():
            return Verified(verified=number % 5, refuted=number % 3, unknown=number % 2)
        case Estimate():
            return Estimated(probability=number % 10 / 10)
        case FindRules():
            rule = Rule(head=Atom("r", 0, 1), body=(Atom("b", 0, 1),), support=1, body_size=2, confidence=0.5)
            return FoundRules(relation="r", rules=(NumberedRule(number % 10, rule),))
        case Mine():
            return Mined(rules=())
        case Grade():
            return Graded(math_verify=number % 2 == 0, strict=False)


def play(job: JobSpec, replay: Replay[Any]) -> Iterator[str]:
    """Answer a replay to its end; one line for the requests of each round, and one for how it ends."""
    binder = SampleBinder(job.binding, 0)
    while replay.calls and replay.position < MOST_ROUNDS:
        requests = list(binder.bind(replay.calls))
        roles = ", ".join(dict.fromkeys(each.role for each in requests))
        yield f"{roles} x {len(requests)}: {canonical.digest([each.body.decode() for each in requests]).hex()[:12]}"
        replay.answer([reply(call) for call in replay.calls])
    if replay.failure:
        yield f"failure {replay.failure[0]}"
    elif replay.result is not None:
        yield f"result {canonical.digest(rounded(msgspec.to_builtins(replay.result))).hex()[:12]}"


def rounded(value: Any) -> Any:
    """Processors differ in the last digits of a correlation."""
    match value:
        case float():
            return float(f"{value:.6g}")
        case dict():
            return {key: rounded(each) for key, each in value.items()}
        case list() | tuple():
            return [rounded(each) for each in value]
        case _:
            return value


def play_job(name: str, params: Params) -> Iterator[str]:
    job = make_placeholder_job(name, params)
    if job.find_pipeline().prepare is not None:
        prepared = job.prepare(ITEMS * 20, LIBRARY)
        yield from play(job, prepared)
        job = msgspec.structs.replace(job, prepared=prepared.result)
    for item in ITEMS:
        yield from play(job, job.start(item, 0, LIBRARY))


def record(name: str) -> dict[str, Any]:
    plays: dict[str, list[str]] = {}
    for variant in VARIANTS:
        lines = list(play_job(name, msgspec.convert(variant, Params)))
        if lines not in plays.values():
            plays[json.dumps(variant)] = lines
    return {"version": registry.get(name).version, "plays": plays}


def test_each_pipeline_asks_and_answers_what_its_version_did() -> None:
    found = {name: record(name) for name in registry.list_offered()}
    recorded = json.loads((golden.FOLDER / "pipelines.json").read_text("utf-8"))
    same_version = {name for name, each in recorded.items() if each["version"] == registry.get(name).version}
    changed = sorted(name for name in same_version if found[name]["plays"] != recorded[name]["plays"])
    assert not changed, f"raise the version, `@pipeline(name, version=…)`, of {', '.join(changed)}"
    golden.compare("pipelines.json", json.dumps(found, indent=1) + "\n")


@pytest.mark.parametrize("name", registry.list_offered())
def test_the_recorded_plays_of_a_pipeline_end_with_results(name: str) -> None:
    lines = list(play_job(name, Params()))
    assert lines[-1].startswith("result")
    assert len(lines) >= 2 * len(ITEMS)
