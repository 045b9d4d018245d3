"""From an experiment to cells and jobs: what is asked twice is one job, and what makes no sense is refused by name."""

from itertools import product
from typing import Any

import pytest

from services.orchestrator.experiments.grid import WITHOUT_RATIO, Grid, expand
from shared.errors import Invalid, TooLarge
from shared.experiments import EXAMPLE, Experiment
from shared.storage.configurations import SHIPPED, Configuration

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
    found = grid(variants=[DENSE_VARIANT, GATE_VARIANT], grid={"rrf_weight": [0, 1], "quality_weight": [0, 1], "gate.tau": [0.2, 0.4]})
    of = {name: {cell.job for cell in found.cells if cell.variant.name == name} for name in ("dense", "gate")}
    assert of["dense"] == {0}
    assert len(of["gate"] - {None}) == 6


def test_cells_are_told_apart_by_all_else() -> None:
    places = [{"dataset": "d", "corpus": "c"}, {"dataset": "d", "corpus": "k"}, {"dataset": "e", "corpus": "c"}]
    other = {"name": "other", "pipeline": "mathrag-gate", "models": {"judge": "another"}}
    found = grid(datasets=places, variants=[GATE_VARIANT, DENSE_VARIANT, other], grid={"candidates": [5, 6]}, seeds=[1, 2])
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
    found = grid(variants=[DENSE_VARIANT, GATE_VARIANT], grid={"candidates": [8, 9], "context_size": [1, 2]}, seeds=[0, 1])
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
        ({"grid": {"gate.tua": [1]}}, "`grid.gate.tua`: there is no such parameter", "fields of `params.gate`: "),
        ({"grid": {"tau": [1]}}, "`grid.tau`: there is no such parameter", "fields of `params`: anchors, "),
        ({"grid": {"gate": [{"tau": 1}]}}, "`grid.gate`: is a group of parameters", "name one of them: "),
        ({"grid": {"seed": [1]}, "seeds": [1]}, "`grid.seed`: seeds belong in `seeds`", "remove `grid.seed`"),
        ({"grid": {"context_size": [1, 99]}}, "`variants.gate`: at context_size=99 `params.context_size`: must", None),
        ({"grid": {"context_size": ["one"]}}, '`variants.gate`: at context_size="one" `params.context_size`: ', None),
        ({"params": {"gait": 1}}, "`variants.gate`: `params.gait`: there is no such field", "fields of `params`"),
        ({"variants": [{"name": "x", "pipeline": "dens"}]}, "`variants.x`: `pipeline`: no pipeline 'dens'", "pipeline"),
        ({"variants": [GATE_VARIANT, GATE_VARIANT]}, "`variants`: 'gate' is given twice", "its own name"),
        ({"datasets": [{"dataset": "d"}, {"dataset": "d"}]}, "`datasets`: 'd (None)' is given twice", "leave one out"),
        ({"baseline": "nobody"}, "`baseline`: no variant 'nobody'", "use one of `variants`: gate"),
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
