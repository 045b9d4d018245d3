"""Experiments: from their description to jobs, what these cost, and what comes out."""

import uuid
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from typing import Any

import pytest

from mathrag.errors import Invalid, TooLarge
from services.orchestrator.experiments.grid import WITHOUT_RATIO, Grid, expand
from services.orchestrator.experiments.planning import SizedJob, bound_calls, count_work
from services.orchestrator.experiments.report import ChosenAxes, Family, choose, find_axes, make_family, split_by_figure
from shared.experiments import EXAMPLE, Experiment
from shared.params import CriticParams, GateParams, GenerateParams, HydeParams, JudgeParams, MetricsParams
from shared.pipelines.binding import Pin
from shared.storage.configurations import SHIPPED, Configuration
from shared.storage.experiments import Cell, Member, Standing, state_of
from shared.storage.jobs import RequestCounts
from tests.unit.services.orchestrator.test_scheduling import DENSE, GENERATOR, JUDGE, PINS, SPARSE, job

# What varies within an experiment, and how its cells are laid out.


def cell(variant: str, *, dataset: str = "items", corpus: str | None = "docs", seed: int = 0, **point: Any) -> Cell:
    return Cell(
        index=0, dataset=dataset, corpus=corpus, variant=variant, pipeline="dense", point=point, seed=seed, job=None,
        job_name=None, state="purged", refused=None,
    )  # fmt: skip


def test_only_what_varies_is_an_axis_in_the_order_of_the_document() -> None:
    cells = [cell(variant, k=k, style=style) for variant in ("b", "a") for k in (3, 1.5) for style in ("x", None)]
    assert find_axes(cells) == {"k": ["3", "1.5"], "style": ["x", "null"], "variant": ["b", "a"]}
    assert find_axes([cell("a")]) == {}


def test_a_dataset_that_is_searched_in_several_corpora_is_told_apart() -> None:
    found = find_axes([cell("a", corpus=corpus) for corpus in ("docs", "items", None)])
    assert found == {"dataset": ["items in docs", "items"]}


@pytest.mark.parametrize(
    ("names", "x", "y", "chosen"),
    [
        ([], None, None, (None, None)),
        (["variant"], None, None, ("variant", None)),
        (["variant", "dataset"], None, None, ("variant", "dataset")),
        (["variant", "k"], None, None, ("k", None)),
        (["variant", "k", "seed"], None, None, ("k", "seed")),
        (["variant", "k"], "variant", None, ("variant", "k")),
        (["variant", "k"], None, "k", ("variant", "k")),
        (["variant", "k", "seed"], "seed", "none", ("seed", None)),
    ],
)
def test_parameters_are_the_axes_where_none_was_chosen(
    names: list[str], x: str | None, y: str | None, chosen: tuple[str | None, str | None]
) -> None:
    assert choose({name: ["1", "2"] for name in names}, x, y) == ChosenAxes(*chosen)


@pytest.mark.parametrize(("x", "y", "said"), [("beauty", None, "`x`"), (None, "beauty", "`y`"), ("k", "k", "`y`")])
def test_an_axis_that_there_is_not_is_refused(x: str | None, y: str | None, said: str) -> None:
    with pytest.raises(Invalid, match=said) as refused:
        choose({"k": ["1", "2"]}, x, y)
    assert "k" in (refused.value.hint or "") or "none" in (refused.value.hint or "")


def test_cells_are_parted_by_what_stands_on_no_axis() -> None:
    cells = [cell(variant, k=k, seed=seed) for variant in ("a", "b") for k in (1, 2) for seed in (0, 1)]
    found = split_by_figure(cells, find_axes(cells), ("k", "variant"))
    assert {name: len(part) for name, part in found.items()} == {"seed 0": 4, "seed 1": 4}
    assert list(split_by_figure(cells, find_axes(cells), ("k", "seed"))) == ["variant a", "variant b"]
    assert list(split_by_figure(cells, find_axes(cells), ("k", "seed", "variant"))) == [""]


# Which systems of an experiment are compared with which, and over which datasets.

NOW = datetime(2026, 11, 22, tzinfo=UTC)
NONE = RequestCounts(total=0, completed=0, failed=0, cancelled=0, in_progress=0, unparsed=0)


def finished_cell(
    variant: str, job: int | None, dataset: str = "d", seed: int = 0, corpus: str = "c", **point: Any
) -> Cell:
    return Cell(
        index=0, dataset=dataset, corpus=corpus, variant=variant, pipeline="p", point=point, seed=seed,
        job=None if job is None else uuid.UUID(int=job), job_name=None, state="completed", refused=None,
    )  # fmt: skip


def of(cells: Sequence[Cell], baseline: str | None = None) -> Family:
    ids = {each.job for each in cells if each.job}
    members = {each.int: Member(each, "completed", NONE, None, NOW, NOW, (0, None, None)) for each in ids}
    found = Standing(
        id=uuid.UUID(int=0), name="e", state="completed", cells=len(cells), refused=0, jobs={}, created_at=NOW,
        ended_at=NOW, baseline=baseline, request_counts=NONE, eta_seconds=None, grid=list(cells),
    )  # fmt: skip
    return make_family(found, members)


def test_a_variant_over_several_datasets_is_one_system() -> None:
    found = of(
        [
            finished_cell("a", 1, "d"),
            finished_cell("b", 2, "d"),
            finished_cell("a", 3, "e"),
            finished_cell("b", 4, "e"),
        ],
        "a",
    )
    assert {each.name: each.jobs for each in found.systems} == {"a": {"d": 1, "e": 3}, "b": {"d": 2, "e": 4}}
    assert found.pairs == [("b", "a")]
    assert {each.name: each.jobs for each in found.on("e").systems} == {"a": {"e": 3}, "b": {"e": 4}}


def test_a_system_is_compared_with_the_baseline_at_its_own_point_and_seed() -> None:
    cells = [
        finished_cell(variant, number * 10 + place, size=size, seed=seed)
        for number, variant in enumerate("ab", 1) for place, (size, seed) in enumerate([(1, 0), (3, 0), (3, 1)])
    ]  # fmt: skip
    assert of(cells, "a").pairs == [
        ("b size=1 seed=0", "a size=1 seed=0"), ("b size=3 seed=0", "a size=3 seed=0"),
        ("b size=3 seed=1", "a size=3 seed=1"),
    ]  # fmt: skip


def test_systems_that_the_same_jobs_answer_are_one() -> None:
    cells = [
        finished_cell("a", 1, w=1),
        finished_cell("a", 1, w=2),
        finished_cell("b", 2, w=1),
        finished_cell("b", 2, w=2),
        finished_cell("b", 3, w=3),
    ]
    found = of([*cells, finished_cell("a", 1, w=3)], "a")
    assert [each.name for each in found.systems] == ["a w=1", "b w=1", "b w=3"]
    assert found.pairs == [("b w=1", "a w=1"), ("b w=3", "a w=1")]


def test_without_a_baseline_each_is_compared_with_each() -> None:
    assert of([finished_cell(name, number) for number, name in enumerate("abc", 1)]).pairs == [
        ("a", "b"), ("a", "c"), ("b", "c"),
    ]  # fmt: skip


def test_a_cell_without_a_job_is_in_no_system() -> None:
    found = of(
        [
            finished_cell("a", None),
            finished_cell("b", 2),
            finished_cell("b", 3, "e"),
        ],
        "a",
    )
    assert ([each.name for each in found.systems], found.pairs) == (["b"], [])
    found = of(
        [
            finished_cell("a", None),
            finished_cell("a", 1, "e"),
            finished_cell("b", 2),
            finished_cell("b", 3, "e"),
        ],
        "a",
    )
    assert (found.on("d").pairs, found.on("e").pairs) == ([], [("b", "a")])


def test_one_dataset_in_two_corpora_is_two() -> None:
    found = of([finished_cell("a", 1, corpus="k"), finished_cell("a", 2, corpus="l")])
    assert [dict(each.jobs) for each in found.systems] == [{"d in k": 1, "d in l": 2}]


def test_an_experiment_is_as_its_worst_job_is() -> None:
    assert state_of({"completed": 3}) == "completed"
    assert state_of({"completed": 3, "cancelled": 1}) == "cancelled"
    assert state_of({"completed": 3, "cancelled": 1, "failed": 1}) == "failed"
    assert state_of({"failed": 1, "paused": 1}) == "running"
    assert state_of({"failed": 1, "cancelling": 1}) == "cancelling"
    assert state_of({"running": 1, "cancelling": 1}) == "running"
    assert state_of({}) == "purged"


# From an experiment to cells and jobs: what is asked twice is one job, and what makes no sense is refused by name.

ROLES = {"judge": "a-judge", "generate": "a-generator"}
GATE_VARIANT = {"name": "gate", "pipeline": "mathrag-gate"}
DENSE_VARIANT = {"name": "dense", "pipeline": "dense"}


def grid(configured: Configuration = SHIPPED, most: int = 1000, **fields: Any) -> Grid:
    given = {"name": "e", "datasets": [{"dataset": "d", "corpus": "c"}], "variants": [GATE_VARIANT], **fields}
    return expand(Experiment(**given), configured, ROLES, most=most)


def test_integer_weights_from_0_to_10_are_121_cells_and_65_jobs() -> None:
    found = grid(grid={"rrf_weight": list(range(11)), "quality_weight": list(range(11))})
    assert (len(found.cells), len(found.jobs)) == (121, 65)
    refused = [cell for cell in found.cells if cell.job is None]
    assert [(cell.point, cell.refused) for cell in refused] == [
        ({"rrf_weight": 0, "quality_weight": 0}, WITHOUT_RATIO)
    ]  # fmt: skip


def test_cells_share_a_job_exactly_where_their_ratios_are_equal() -> None:
    values = range(5)
    cells = grid(grid={"rrf_weight": list(values), "quality_weight": list(values)}).cells
    run = [cell for cell in cells if cell.job is not None]
    for one, other in product(run, run):
        a, b = (one.point[name] for name in ("rrf_weight", "quality_weight"))
        c, d = (other.point[name] for name in ("rrf_weight", "quality_weight"))
        assert (one.job == other.job) is (a * d == b * c)


def test_ratios_are_those_of_the_numbers_as_written() -> None:
    found = grid(grid={"rrf_weight": [0.1, 0.3], "quality_weight": [0.9, 2.7]})
    assert [cell.job for cell in found.cells] == [0, 1, 2, 0]


def test_a_job_runs_with_the_parameters_of_the_first_of_its_cells() -> None:
    found = grid(grid={"rrf_weight": [2, 4], "quality_weight": [3, 6]})
    assert [(job.params.rrf_weight, job.params.quality_weight) for job in found.jobs] == [(2, 3), (2, 6), (4, 3)]


def test_a_baseline_beside_a_grid_of_weights_is_one_job() -> None:
    found = grid(
        variants=[DENSE_VARIANT, GATE_VARIANT],
        grid={"rrf_weight": [0, 1], "quality_weight": [0, 1], "gate.tau": [0.2, 0.4]},
    )
    of = {name: {cell.job for cell in found.cells if cell.variant.name == name} for name in ("dense", "gate")}
    assert of["dense"] == {0}
    assert len(of["gate"] - {None}) == 6


def test_cells_are_told_apart_by_all_else() -> None:
    places = [{"dataset": "d", "corpus": "c"}, {"dataset": "d", "corpus": "k"}, {"dataset": "e", "corpus": "c"}]
    other = {"name": "other", "pipeline": "mathrag-gate", "models": {"judge": "another"}}
    found = grid(
        datasets=places, variants=[GATE_VARIANT, DENSE_VARIANT, other], grid={"candidates": [5, 6]}, seeds=[1, 2]
    )
    assert len(found.cells) == 3 * 3 * 2 * 2
    assert len(found.jobs) == 3 * 2 * (2 + 2 + 1)


def test_naming_what_holds_anyway_asks_for_nothing_else() -> None:
    named = [
        {"name": "default", "pipeline": "mathrag-gate", "params": {"rrf_k": 60}},
        {"name": "configured", "pipeline": "mathrag-gate", "params": {"candidates": 7}},
        {"name": "model", "pipeline": "mathrag-gate", "models": {"judge": "a-judge"}},
    ]
    found = grid(Configuration(version=3, params={"candidates": 7}), variants=[GATE_VARIANT, *named])
    assert [cell.job for cell in found.cells] == [0, 0, 0, 0]
    assert (found.jobs[0].params.candidates, found.jobs[0].configuration) == (7, 3)


def test_the_grid_lies_on_the_variant_and_this_on_the_experiment() -> None:
    found = grid(
        params={"candidates": 3, "gate": {"items": 9, "tau": 0.1}, "anchors": {"positive": "p"}},
        models={"generate": "g", "judge": "x"},
        variants=[{**GATE_VARIANT, "params": {"gate": {"tau": 0.2}}, "models": {"judge": "j"}}],
        grid={"gate.tau": [0.3], "anchors.negative": ["n"]}, repeats=2, rank=7, metadata={"run": "1"}, seeds=[5],
    )  # fmt: skip
    (job,) = found.jobs
    assert (job.params.candidates, job.params.gate.items, job.params.gate.tau, job.params.seed) == (3, 9, 0.3, 5)
    assert job.params.anchors == {"positive": "p", "negative": "n"}
    assert (dict(job.models), job.repeats, job.rank) == ({"generate": "g", "judge": "j"}, 2, 7)
    assert (job.name, job.metadata, found.cells[0].seed) == ("e-gate-1", {"run": "1"}, 5)


def test_cells_come_in_the_order_of_the_document() -> None:
    found = grid(
        variants=[DENSE_VARIANT, GATE_VARIANT], grid={"candidates": [8, 9], "context_size": [1, 2]}, seeds=[0, 1]
    )
    first = [(cell.variant.name, *cell.point.values(), cell.seed) for cell in found.cells[:4]]
    assert first == [("dense", 8, 1, 0), ("dense", 8, 1, 1), ("dense", 8, 2, 0), ("dense", 8, 2, 1)]
    assert found.cells[8].variant.name == "gate"


def test_without_a_grid_there_is_a_cell_for_every_variant_with_the_seed_that_it_has() -> None:
    found = grid(variants=[DENSE_VARIANT, {**GATE_VARIANT, "params": {"seed": 4}}])
    assert [(cell.variant.name, dict(cell.point), cell.seed) for cell in found.cells] == [
        ("dense", {}, 0), ("gate", {}, 4),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("fields", "said", "hint"),
    [
        ({"grid": {"gate.tua": [1]}}, "`grid.gate.tua`: unknown parameter", "fields of `params.gate`: "),
        ({"grid": {"tau": [1]}}, "`grid.tau`: unknown parameter", "fields of `params`: anchors, "),
        ({"grid": {"gate": [{"tau": 1}]}}, "`grid.gate`: is a group of parameters", "name one of them: "),
        ({"grid": {"seed": [1]}, "seeds": [1]}, "`grid.seed`: seeds belong in `seeds`", "remove `grid.seed`"),
        ({"grid": {"context_size": [1, 99]}}, "`variants.gate`: at context_size=99 `params.context_size`: must", None),
        ({"grid": {"context_size": ["one"]}}, '`variants.gate`: at context_size="one" `params.context_size`: ', None),
        ({"params": {"gait": 1}}, "`variants.gate`: `params.gait`: there is no such field", "fields of `params`"),
        ({"variants": [{"name": "x", "pipeline": "dens"}]}, "`variants.x`: `pipeline`: no pipeline 'dens'", "pipeline"),
        ({"variants": [GATE_VARIANT, GATE_VARIANT]}, "`variants`: 'gate' is given twice", "its own name"),
        ({"datasets": [{"dataset": "d"}, {"dataset": "d"}]}, "`datasets`: 'd (None)' is given twice", "leave one out"),
        ({"baseline": "nobody"}, "`baseline`: unknown variant 'nobody'", "use one of `variants`: gate"),
        ({"grid": {"rrf_weight": [0], "quality_weight": [0]}}, "`grid`: no cell can run: " + WITHOUT_RATIO, "not 0"),
    ],
)
def test_what_cannot_be_is_refused_with_its_field_and_the_fix(
    fields: dict[str, Any], said: str, hint: str | None
) -> None:
    with pytest.raises(Invalid) as refused:
        grid(**fields)
    assert refused.value.message.startswith(said)
    assert hint is None or hint in str(refused.value.hint)


def test_too_many_cells_are_counted_before_they_are_made() -> None:
    many = list(range(1000))
    with pytest.raises(TooLarge, match=r"2 variants x 3 seeds x 1000 candidates x 1000 rrf_k are 6000000 cells"):
        grid(variants=[DENSE_VARIANT, GATE_VARIANT], seeds=[1, 2, 3], grid={"candidates": many, "rrf_k": many})
    grid(most=4, variants=[DENSE_VARIANT, GATE_VARIANT], seeds=[1, 2])
    with pytest.raises(TooLarge, match=r"`limits.cells` allows \(3\)"):
        grid(most=3, variants=[DENSE_VARIANT, GATE_VARIANT], seeds=[1, 2])


def test_the_example_of_the_documentation_expands() -> None:
    found = expand(Experiment(**EXAMPLE), SHIPPED, ROLES, most=1000)
    assert (len(found.cells), len(found.jobs)) == (4, 4)


# How many calls an experiment makes at most: what jobs are known to share is counted once, all else for each job.

MANY = 10_000
"""Documents: more than anybody asks for."""


def sized(
    pipeline: str, pins: dict[str, Pin] = PINS, *, items: int = 10, repeats: int = 1, dataset: int = 1,
    corpus: int = 1, documents: int = MANY, **params: Any,
) -> SizedJob:  # fmt: skip
    spec = job(pipeline, pins, gate=GateParams(items=3, tau=1.0), **params)
    return SizedJob(spec, dataset, items, repeats, corpus, documents)


def counted(*jobs: SizedJob) -> dict[str, int]:
    total: Counter[str] = Counter()
    for slot, count in bound_calls(jobs).items():
        total[slot.role] += count
    return dict(total)


def test_one_job_makes_every_call_of_every_question() -> None:
    assert counted(sized("closed-book")) == {"generate": 10}
    # Made-up lists have nothing in common: four of eight documents are candidates.
    assert counted(sized("mathrag-gate")) == {"retrieve": 20, "judge": 40, "generate": 10}


def test_items_that_control_the_metrics_make_further_calls() -> None:
    def judged(controls: int) -> int:
        metrics = MetricsParams(names=("answer_relevance",), controls=controls)
        return counted(sized("closed-book", metrics=metrics))["judge"]

    # Each answer to its own question, and those of the controls to another one.
    assert [judged(controls) for controls in (0, 3, 40)] == [10, 13, 20]


def test_searches_of_the_same_questions_are_made_once() -> None:
    assert counted(sized("dense"), sized("sparse"), sized("hybrid"), sized("mathrag-gate"))["retrieve"] == 20
    assert counted(sized("dense"), sized("dense", dataset=2))["retrieve"] == 20
    assert counted(sized("dense"), sized("closed-book", dataset=2)) == {"retrieve": 10, "generate": 20}


def test_what_every_repeat_draws_anew_and_what_follows_from_it_counts_for_each() -> None:
    assert counted(sized("hybrid", repeats=5)) == {"retrieve": 20, "generate": 10}
    sampled = {"generate": GenerateParams(temperature=0.7)}
    assert counted(sized("hybrid", repeats=5, **sampled)) == {"retrieve": 20, "generate": 50}
    voting = counted(sized("self-consistency", repeats=5))
    assert voting == {"retrieve": 20, "generate": 250, "grade": 1000}
    anew = counted(sized("mathrag-gate", repeats=5, judge=JudgeParams(per_repeat=True)))
    assert anew == {"retrieve": 20, "judge": 200, "generate": 50}


def test_answers_without_a_context_are_made_once_those_with_one_may_differ() -> None:
    assert counted(sized("closed-book"), sized("closed-book")) == {"generate": 10}
    assert counted(sized("dense"), sized("dense", context_size=3))["generate"] == 20


def test_weights_cost_no_rating_and_at_most_an_answer_each() -> None:
    weights = [sized("mathrag-gate", documents=25, rrf_weight=number / 10) for number in range(1, 6)]
    assert counted(*weights) == {"retrieve": 20, "judge": 25, "generate": 50}
    assert counted(*weights[:1])["judge"] == 25


def test_ratings_by_another_rubric_or_judge_or_of_another_corpus_are_others() -> None:
    other = {**PINS, "judge": Pin(model_id=99, hash=f"{99:064x}")}
    jobs = [
        sized("mathrag-gate", documents=5), sized("mathrag-gate", documents=5, rrf_k=10),
        sized("mathrag-gate", documents=5, anchors={"negative": "n"}), sized("mathrag-gate", other, documents=5),
        sized("mathrag-gate", documents=7, corpus=2),
    ]  # fmt: skip
    assert counted(*jobs)["judge"] == 5 + 5 + 5 + 7


def test_a_rating_that_sees_the_question_is_counted_for_every_job() -> None:
    critic = sized("critic-loop", documents=5, critic=CriticParams(attempts=1))
    assert counted(critic)["judge"] == 30
    assert counted(critic, sized("critic-loop", critic=CriticParams(attempts=1), context_size=2))["judge"] == 60


def test_only_repeats_that_draw_anew_ask_again() -> None:
    assert counted(sized("dense", repeats=5)) == {"retrieve": 10, "generate": 10}
    drawn = sized("dense", repeats=5, generate=GenerateParams(temperature=0.7))
    assert counted(drawn) == {"retrieve": 10, "generate": 50}
    alone = sized("closed-book", repeats=5, generate=GenerateParams(temperature=0.7))
    assert counted(alone, alone) == {"generate": 50}
    assert counted(alone, alone._replace(repeats=3)) == {"generate": 50}


def test_texts_written_before_a_search_are_counted_where_they_are_known() -> None:
    hyde = [sized("hyde", hyde=HydeParams(documents=2), context_size=size) for size in (1, 2)]
    found = counted(*hyde)
    assert found["write"] == 20
    assert found["retrieve"] == 20


def test_a_model_without_a_digest_answers_every_job_anew() -> None:
    pins = {**PINS, "generate": Pin(model_id=GENERATOR, hash=f"{GENERATOR:064x}", pinned=False)}
    assert counted(sized("closed-book", pins), sized("closed-book", pins)) == {"generate": 20}


def test_the_plan_is_made_for_what_the_jobs_ask_together() -> None:
    found = count_work([sized("mathrag-gate", documents=25, rrf_weight=weight) for weight in (0.1, 0.2, 0.3)])
    assert {role: (calls.most, calls.apart) for role, calls in found.calls.items()} == {
        "retrieve": (20, 60), "judge": (25, 75), "generate": (30, 30),
    }  # fmt: skip
    assert {model: wanted.calls for model, wanted in found.needs.wanted.items()} == {
        DENSE: 10, SPARSE: 10, JUDGE: 25, GENERATOR: 30,
    }  # fmt: skip
    assert [model for model in found.needs.order if model in (JUDGE, GENERATOR)][-2:] == [JUDGE, GENERATOR]


@pytest.mark.parametrize(
    "pipeline", ["enhanced", "crag", "enhanced-crag", "self-rag", "critic-loop", "hyde", "mathrag-gate"]
)
def test_a_job_beside_itself_asks_no_less_than_alone_and_no_more_than_twice(pipeline: str) -> None:
    pins = {
        **PINS,
        **{role: Pin(model_id=50 + n, hash=f"{50 + n:064x}") for n, role in enumerate(("rerank", "verify"))},
    }
    one = sized(pipeline, pins)
    alone, both = counted(one), counted(one, one)
    assert alone.keys() == both.keys()
    assert all(alone[role] <= both[role] <= 2 * alone[role] for role in alone)
