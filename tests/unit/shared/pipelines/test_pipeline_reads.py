"""A pipeline says which parameters it reads, and that is what it reads."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from mathrag.errors import Invalid
from services.orchestrator.api.chat import ChatRequest
from services.orchestrator.api.jobs import JobRequest
from services.orchestrator.api.plans import PlanJob
from services.orchestrator.experiments.grid import expand
from shared.experiments import Experiment
from shared.params import Params
from shared.pipelines import registry
from shared.pipelines.binding import Binding, Pin
from shared.pipelines.switches import SWITCHES, Switch, covers, get_values
from shared.rag.grading import GRADERS
from shared.runtime.advance import JobSpec
from shared.runtime.parameters import check_grading, check_read, parse_params
from shared.runtime.price import dry_run
from shared.samples import Item
from shared.storage.configurations import SHIPPED, merge
from tests.unit.watched import LEAVES, SEEN, Tree, leaf_of, nested, other_values, watched

VARIANTS: tuple[Tree, ...] = (
    {}, {"fusion": {"method": "weighted"}}, {"enhance": {"hyde": True}}, {"rerank": {"floor": 0.2}},
    {"rerank": {"refuse": True}}, {"quality": "judge"}, {"quality": "verifier"}, {"route": {"enabled": True}},
    {"crag": {"fallback": "x", "rounds": 2, "upper": 1}}, {"crag": {"evaluator": "similarity"}},
    {"critic": {"reply": "json"}},
    {"crag": {"thresholds": "calibrated"}}, {"gate": {"truth": "verifier"}}, {"anchors": {"negative": "b"}},
    {"rulerag": {"order": "random", "query": "rewritten"}}, {"rulerag": {"use": "generation", "cot": True}},
    {"crag": {"evaluator": "reranker"}}, {"rerank": {"by": "rating"}},
    {"rerank": {"by": "yes-no", "floor": 0.2, "tested": True}},
    {"rated": 2, "context_size": 2},
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
        "execute",
        "estimate",
        "rules",
    )
}
ELSEWHERE = {
    "crag": {"crag.calibrated_by", "crag.judged_by"},
    "enhanced-crag": {"crag.calibrated_by", "crag.judged_by"},
    "critic-loop": {"critic.rewrite_from"},
    "mathrag-gate": {"gate.items", "gate.on_unusable", "gate.labels", "rerank.by", "rerank.tested", "seed"},
}
"""Parameters that are read where a dry run does not come: at submission, for the choice of a calibration's items, or
after a reply of another kind than the made-up ones."""
IN_VAIN = {
    "closed-book": {"duplicates"},
    "self-consistency": {"generate.temperature"},
    "self-rag": {"generate.template"},
    "rulerag": {"generate.template"},
}
"""Parameters that are read and then not used: nothing is searched for, or the pipeline has a temperature or a prompt of
its own."""
LATER = {
    "crag": {"crag.diversity", "crag.similarity", "enhance.decoding"},
    "enhanced-crag": {"crag.diversity", "crag.similarity"},
    "critic-loop": {"critic.decoding"},
    "rulerag": {"rulerag.decoding"},
}
"""Parameters that are read after replies which the made-up ones are not."""
AFTER_ALL = ("grading", "metrics")
"""What the runtime reads whatever the pipeline does."""


def run(pipeline: str, tree: Tree) -> list[list[bytes]]:
    params = watched(msgspec.convert(tree, Params))
    binding = Binding(pins=PINS, params=params)
    job = JobSpec(id=0, pipeline=pipeline, dataset_id=0, params=params, prepared=None, binding=binding)
    SEEN.clear()
    item = Item(ordinal=0, question="What is the sum of 2 and 3?", gold="5")
    return [[each.body for each in calls] for calls in dry_run(job, item)]


def read_by(pipeline: str, tree: Tree) -> set[str]:
    run(pipeline, tree)
    return {each for each in LEAVES if each in SEEN}


def named_by(pipeline: str) -> set[str]:
    found = registry.get(pipeline)
    return {each for each in LEAVES if not found.ignores(each) and not covers(each, AFTER_ALL)}


@pytest.mark.parametrize("pipeline", registry.list_offered())
def test_a_pipeline_declares_exactly_what_it_reads(pipeline: str) -> None:
    read = set[str]().union(*(read_by(pipeline, variant) for variant in (*VARIANTS, BESIDE["fusion.slope"])))
    read = (read | ELSEWHERE.get(pipeline, set())) - IN_VAIN.get(pipeline, set())
    after = {each for each in LEAVES if covers(each, AFTER_ALL)}
    assert named_by(pipeline) - read == set()
    assert read - after - named_by(pipeline) == set()


@pytest.mark.parametrize("pipeline", registry.list_offered())
def test_every_parameter_that_a_job_may_set_alone_is_read_by_its_pipeline(pipeline: str) -> None:
    found, defaults = registry.get(pipeline), get_values(Params())
    accepted = {each for each in named_by(pipeline) if found.find_closed(each, defaults) is None}
    assert accepted - read_by(pipeline, {}) - ELSEWHERE.get(pipeline, set()) - LATER.get(pipeline, set()) == set()


BESIDE: dict[str, Tree] = {
    "crag.diversity": {"crag": {"upper": 1}},
    "fusion.normaliser": {"fusion": {"method": "weighted"}},
    "fusion.slope": {"fusion": {"method": "weighted", "normaliser": "sigmoid"}},
    "hyde.style": {"enhance": {"hyde": True}},
    "hyde.decoding": {"enhance": {"hyde": True}},
    "rerank.tested": {"rerank": {"floor": 0.5}},
}
"""What else a parameter needs to be read."""


def set_switch(switch: Switch, pipeline: str, *, closed: bool) -> Tree:
    tree: Tree = {}
    for path in switch.by:
        if not registry.get(pipeline).ignores(path):
            found = leaf_of(path)
            kinds: dict[str, list[Any]] = {
                "flag": [False, True],
                "whole": [0, 1],
                "number": [0.0, 0.5],
                "text": ["", "x"],
                "names": [[], ["x"]],
            }
            values = kinds.get(found.kind, list(found.choices))
            tree = merge(tree, nested(path, next(each for each in values if (each in switch.closing) is closed)))
    return tree


def submit(pipeline: str, tree: Tree) -> None:
    JobRequest(name="n", dataset="d", corpus="c", pipeline=pipeline, params=tree).submission()


def ask(pipeline: str, tree: Tree) -> None:
    ChatRequest(question="What?", corpus="c", pipeline=pipeline, params=tree).submission(SHIPPED)


def plan(pipeline: str, tree: Tree) -> None:
    PlanJob(pipeline=pipeline, corpus="c", params=tree).submission()


def experiment(pipeline: str, tree: Tree, **fields: Any) -> None:
    variants = [{"name": "own", "pipeline": pipeline}]
    asked = Experiment(**{"name": "e", "datasets": [{"dataset": "d"}], "variants": variants, "params": tree, **fields})
    expand(asked, SHIPPED, {}, most=100)


def vary(pipeline: str, tree: Tree) -> None:
    experiment(pipeline, {}, variants=[{"name": "own", "pipeline": pipeline, "params": tree}])


ROUTES = (submit, ask, plan, experiment, vary)


def refusal(route: Callable[[str, Tree], None], pipeline: str, tree: Tree) -> Invalid | None:
    try:
        route(pipeline, tree)
    except Invalid as error:
        return error
    return None


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("pipeline", registry.list_offered())
def test_every_parameter_is_read_or_refused_by_name(pipeline: str, route: Callable[[str, Tree], None]) -> None:
    found, defaults = registry.get(pipeline), get_values(Params())
    for path in LEAVES:
        leaf = leaf_of(path).path
        reads = not found.ignores(leaf) and found.find_closed(leaf, defaults) is None
        if route is ask and covers(leaf, ("grading.threshold", "grading.separators")):
            reads = reads and covers(leaf, found.reads or ())
        refused = refusal(route, pipeline, other_values(path))
        assert (refused is None) is reads, leaf
        if refused is not None:
            assert f"params.{leaf}" in refused.message
            assert any(
                who in refused.message for who in (f": {pipeline} would not read it", "is not read while", "chat")
            )
            assert refused.hint


@pytest.mark.parametrize(
    ("grid", "refused"),
    [
        ({"compress.enabled": [False], "compress.tokens": [100, 200]}, "`grid.compress.tokens`: is not read while"),
        (
            {"compress.tokens": [100, 200], "enhance.subqueries": [2], "enhance.decompose": [False]},
            "subqueries`: is not",
        ),
        ({"rerank.floor": [0.1]}, "`grid.rerank.floor`: enhanced would not read it"),
        ({"compress.enabled": [True, False], "compress.tokens": [100, 200]}, None),
    ],
)
def test_one_cell_of_an_experiment_has_to_read_each_parameter(grid: Tree, refused: str | None) -> None:
    if refused is None:
        experiment("enhanced", {}, grid=grid)
        return
    with pytest.raises(Invalid, match=refused):
        experiment("enhanced", {}, grid=grid)


def test_seeds_that_no_cell_reads_are_refused() -> None:
    experiment("mathrag-gate", {}, seeds=[1, 2])
    with pytest.raises(Invalid, match=r"^`seeds`: hybrid would not read it"):
        experiment("hybrid", {}, seeds=[1, 2])
    with pytest.raises(Invalid, match=r'^`seeds`: is not read while `quality` is "rules"'):
        experiment("mathrag-gate", {"quality": "rules"}, seeds=[1, 2])


REFUSED_BEFORE = {
    ("fusion.normaliser", "rulerag.index"),
    ("fusion.slope", "rulerag.index"),
    ("fusion.slope", "fusion.method"),
}
"""Parameters and switches that another switch comes before."""
SWITCHED = [
    pytest.param(switch, path, pipeline, id=f"{pipeline}-{path}-{switch.by[0]}")
    for switch in SWITCHES
    for pipeline in registry.list_offered()
    for path in sorted(named_by(pipeline))
    if covers(path, switch.paths) and any(not registry.get(pipeline).ignores(each) for each in switch.by)
    if (path, *switch.by) not in REFUSED_BEFORE
]


@pytest.mark.parametrize(("switch", "path", "pipeline"), SWITCHED)
def test_a_parameter_that_another_one_keeps_from_being_read_changes_no_call(
    switch: Switch, path: str, pipeline: str
) -> None:
    beside = registry.get(pipeline).select_read(BESIDE.get(path, {}))
    off, on = (merge(beside, set_switch(switch, pipeline, closed=closed)) for closed in (True, False))
    changed, by = other_values(path), [each for each in switch.by if not registry.get(pipeline).ignores(each)]
    assert run(pipeline, off) == run(pipeline, merge(off, changed))
    with pytest.raises(
        Invalid, match=f"^`params.{leaf_of(path).path}(.[a-z]+)?`: is not read while `{by[0]}` is"
    ) as refused:
        submit(pipeline, merge(off, changed))
    assert f"leave it out, or change `{by[0]}`" in str(refused.value.hint)
    submit(pipeline, merge(on, changed))
    known = ELSEWHERE.get(pipeline, set()) | LATER.get(pipeline, set())
    assert path in read_by(pipeline, merge(on, changed)) | known


@pytest.mark.parametrize("grader", ["", *GRADERS])
@pytest.mark.parametrize("path", [each for each in LEAVES if covers(each, ("grading",)) and each != "grading.grader"])
def test_a_parameter_of_grading_is_read_by_the_graders_that_its_text_names(path: str, grader: str) -> None:
    found = leaf_of(path)
    readers = {each for each in GRADERS if f"`{each}` only" in found.help}
    assert readers or path == "grading.decoding"
    tree = merge(other_values(path), {"grading": {"grader": grader}} if grader else {})
    params = parse_params(tree)
    if grader in (readers or {"rubric"}):
        submit("dense", tree)
        check_grading([found.path], params)
        return
    with pytest.raises(
        Invalid, match=f'^`params.{found.path}`: is not read while `grading.grader` is "{grader or "math"}"'
    ):
        check_grading([found.path], params)
    if grader:
        with pytest.raises(Invalid, match=f"`params.{found.path}`: is not read"):
            submit("dense", tree)


def test_what_another_parameter_keeps_from_being_read_is_cut_away() -> None:
    params = {"compress": {"enabled": False, "tokens": 99}, "rerank": {"floor": 0.2, "threshold": 0.3}}
    assert registry.get("enhanced").select_read(params) == {
        "compress": {"enabled": False},
        "rerank": {"threshold": 0.3},
    }
    whole = msgspec.to_builtins(msgspec.convert(params, Params))
    for pipeline in registry.list_offered():
        submit(pipeline, registry.get(pipeline).select_read(whole))


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
    request = JobRequest(name="n", dataset="d", corpus="c", pipeline=pipeline, params=params)
    with pytest.raises(Invalid, match=f"`{path}`: {pipeline} would not read it") as refused:
        request.submission()
    assert "generate" in str(refused.value.hint)


def test_what_the_pipeline_reads_is_accepted() -> None:
    params = {"rerank": {"floor": 0.2}, "gate": {"tau": 0.3}, "anchors": {"negative": "x"}, "seed": 3}
    assert JobRequest(name="n", dataset="d", pipeline="mathrag-gate", params=params).submission().params.seed == 3


def test_what_comes_after_every_pipeline_is_accepted_for_each() -> None:
    params = {"grading": {"grader": "text"}}
    submission = JobRequest(name="n", dataset="d", pipeline="closed-book", params=params).submission()
    assert submission.params.grading.grader == "text"


def test_the_same_parameters_can_be_cut_to_what_each_pipeline_reads() -> None:
    params = {"context_size": 3, "generate": {"max_tokens": 9}, "gate": {"tau": 0.3}}
    assert registry.get("closed-book").select_read(params) == {"generate": {"max_tokens": 9}}
    assert registry.get("mathrag-gate").select_read(params) == params


def test_one_of_several_pipelines_has_to_read_a_parameter() -> None:
    gate, hybrid, dense = (("mathrag-gate", Params()), ("hybrid", Params()), ("dense", Params()))
    check_read({"gate": {"tau": 0.3}}, [hybrid, gate], "grid")
    with pytest.raises(Invalid, match=r"grid\.gate\.tau"):
        check_read({"gate": {"tau": 0.3}}, [hybrid, dense], "grid")
