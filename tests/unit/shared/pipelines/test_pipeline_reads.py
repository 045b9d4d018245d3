"""A pipeline says which parameters it reads, and that is what it reads."""

from typing import Any

import msgspec
import pytest

from services.orchestrator.api.submissions import JobRequest
from shared.contracts.params import Params
from shared.contracts.samples import Item
from shared.errors import Invalid
from shared.pipelines import registry
from shared.pipelines.binding import Binding, Pin
from shared.runtime.jobs import JobSpec
from shared.runtime.parameters import check_read
from shared.runtime.price import dry_run
from tests.unit.cases import named

VARIANTS: tuple[dict[str, Any], ...] = (
    {}, {"enhance": {"hyde": True}}, {"rerank": {"floor": 0.2}}, {"rerank": {"refuse": True}}, {"quality": "judge"},
    {"quality": "verifier"}, {"route": {"enabled": True}}, {"crag": {"fallback": "x", "rounds": 2}},
    {"crag": {"evaluator": "similarity"}}, {"gate": {"truth": "verifier"}}, {"anchors": {"negative": "b"}},
    {"rulerag": {"order": "random", "query": "rewritten"}}, {"rulerag": {"use": "generation", "cot": True}},
)  # fmt: skip
"""Settings that switch on a part which reads other parameters."""
PINS = {
    role: Pin(model_id=1, hash="aa")
    for role in (
        "dense",
        "sparse",
        "fallback",
        "rerank",
        "embed",
        "judge",
        "generate",
        "grade",
        "verify",
        "estimate",
        "rules",
    )
}
SEEN: set[str] = set()


class Watched(Params, frozen=True, kw_only=True):
    """Parameters that note what is read of them."""

    def __getattribute__(self, name: str) -> Any:
        if name in Params.__struct_fields__:
            SEEN.add(name)
        return super().__getattribute__(name)


def read_by(pipeline: str) -> set[str]:
    """Parameters and groups that dry runs of the pipeline read; not what the runtime reads whatever the pipeline does.

    That is `grading`, and `duplicates` where nothing is searched for. The choice of a calibration's items reads `seed`
    before a dry run begins.
    """
    roles, found = set[str](), set[str]()
    for variant in VARIANTS:
        params = msgspec.convert(variant, Watched)
        binding = Binding(pins=PINS, params=params)
        job = JobSpec(
            id=0, pipeline=pipeline, rank=0, dataset_id=0, params=params, prepared=None, binding=binding
        )  # fmt: skip
        SEEN.clear()
        for calls in dry_run(job, Item(ordinal=0, question="What is the sum of 2 and 3?", gold="5")):
            roles |= {call.role for call in calls}
        found |= SEEN
    found |= {"seed"} if registry.get(pipeline).prepare else set()
    return found - ({"grading"} if "retrieve" in roles else {"grading", "duplicates"})


def test_a_pipeline_declares_exactly_what_it_reads() -> None:
    """Declared too little, a parameter that counts would be refused; too much, one that does not would be accepted."""
    wrong = {}
    for name in registry.names():
        declared, read = registry.get(name).reads, named(read_by, name)
        if declared is None or {path.partition(".")[0] for path in declared} != read:
            wrong[name] = {"declared": declared, "read": read}
    assert wrong == {}


@pytest.mark.parametrize(
    ("pipeline", "params", "path"),
    [
        ("hybrid", {"gate": {"tau": 0.3}}, "params.gate.tau"),
        ("hybrid", {"fusion": {"by_intent": True}}, "params.fusion.by_intent"),
        ("closed-book", {"candidates": 3}, "params.candidates"),
        ("mathrag-gate", {"rerank": {"enabled": False}}, "params.rerank.enabled"),
    ],
)
def test_a_job_with_a_parameter_that_its_pipeline_does_not_read_is_refused(
    pipeline: str, params: dict[str, Any], path: str
) -> None:
    """The message names it, and the hint what the pipeline reads."""
    request = JobRequest(name="n", dataset="d", corpus="c", pipeline=pipeline, params=params)
    with pytest.raises(Invalid, match=f"`{path}`: {pipeline} would not read it") as refused:
        request.submission()
    assert "generate" in str(refused.value.hint)


def test_what_the_pipeline_reads_is_accepted() -> None:
    """A parameter, a group, and an entry of a group that holds entries."""
    params = {"rerank": {"floor": 0.2}, "gate": {"tau": 0.3}, "anchors": {"negative": "x"}, "seed": 3}
    assert JobRequest(name="n", dataset="d", pipeline="mathrag-gate", params=params).submission().params.seed == 3


def test_what_comes_after_every_pipeline_is_accepted_for_each() -> None:
    """The grade, and the modulus by which a wrong answer's equations are looked at."""
    params = {"grading": {"grader": "text"}, "verify": {"modulus": 10}}
    submission = JobRequest(name="n", dataset="d", pipeline="closed-book", params=params).submission()
    assert (submission.params.grading.grader, submission.params.verify.modulus) == ("text", 10)


def test_the_same_parameters_can_be_cut_to_what_each_pipeline_reads() -> None:
    """Groups that hold nothing of it are left out."""
    params = {"context_size": 3, "generate": {"max_tokens": 9}, "verify": {"modulus": 10}, "gate": {"tau": 0.3}}
    assert registry.get("closed-book").select_read(params) == {"generate": {"max_tokens": 9}, "verify": {"modulus": 10}}
    assert registry.get("mathrag-gate").select_read(params) == params


def test_one_of_several_pipelines_has_to_read_a_parameter() -> None:
    """So that an experiment varies it over pipelines of which some do not read it."""
    check_read({"gate": {"tau": 0.3}}, ["hybrid", "mathrag-gate"], "grid")
    with pytest.raises(Invalid, match=r"grid\.gate\.tau"):
        check_read({"gate": {"tau": 0.3}}, ["hybrid", "dense"], "grid")
