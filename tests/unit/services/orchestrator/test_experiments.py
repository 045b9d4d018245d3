import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from services.orchestrator.experiments.report import ChosenAxes, Family, choose, find_axes, make_family, split_by_figure
from shared.errors import Invalid
from shared.storage.experiments import Cell, Member, Standing, state_of
from shared.storage.jobs import RequestCounts

# What varies within an experiment, and how its cells are laid out.


def cell_axes(
    variant: str, *, dataset: str = "items", corpus: str | None = "docs", seed: int = 0, **point: Any
) -> Cell:
    return Cell(
        index=0, dataset=dataset, corpus=corpus, variant=variant, pipeline="dense", point=point, seed=seed, job=None,
        job_name=None, state="purged", refused=None,
    )  # fmt: skip


def test_only_what_varies_is_an_axis_in_the_order_of_the_document() -> None:
    cells = [cell_axes(variant, k=k, style=style) for variant in ("b", "a") for k in (3, 1.5) for style in ("x", None)]
    assert find_axes(cells) == {"k": ["3", "1.5"], "style": ["x", "null"], "variant": ["b", "a"]}
    assert find_axes([cell_axes("a")]) == {}


def test_a_dataset_that_is_searched_in_several_corpora_is_told_apart() -> None:
    found = find_axes([cell_axes("a", corpus=corpus) for corpus in ("docs", "items", None)])
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
    cells = [cell_axes(variant, k=k, seed=seed) for variant in ("a", "b") for k in (1, 2) for seed in (0, 1)]
    found = split_by_figure(cells, find_axes(cells), ("k", "variant"))
    assert {name: len(part) for name, part in found.items()} == {"seed 0": 4, "seed 1": 4}
    assert list(split_by_figure(cells, find_axes(cells), ("k", "seed"))) == ["variant a", "variant b"]
    assert list(split_by_figure(cells, find_axes(cells), ("k", "seed", "variant"))) == [""]


# Which systems of an experiment are compared with which, and over which datasets.

NOW = datetime(2026, 11, 22, tzinfo=UTC)
NONE = RequestCounts(total=0, completed=0, failed=0, cancelled=0, in_progress=0, unparsed=0)


def cell_experiment_comparisons(
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
            cell_experiment_comparisons("a", 1, "d"),
            cell_experiment_comparisons("b", 2, "d"),
            cell_experiment_comparisons("a", 3, "e"),
            cell_experiment_comparisons("b", 4, "e"),
        ],
        "a",
    )
    assert {each.name: each.jobs for each in found.systems} == {"a": {"d": 1, "e": 3}, "b": {"d": 2, "e": 4}}
    assert found.pairs == [("b", "a")]
    assert {each.name: each.jobs for each in found.on("e").systems} == {"a": {"e": 3}, "b": {"e": 4}}


def test_a_system_is_compared_with_the_baseline_at_its_own_point_and_seed() -> None:
    cells = [
        cell_experiment_comparisons(variant, number * 10 + place, size=size, seed=seed)
        for number, variant in enumerate("ab", 1) for place, (size, seed) in enumerate([(1, 0), (3, 0), (3, 1)])
    ]  # fmt: skip
    assert of(cells, "a").pairs == [
        ("b size=1 seed=0", "a size=1 seed=0"), ("b size=3 seed=0", "a size=3 seed=0"),
        ("b size=3 seed=1", "a size=3 seed=1"),
    ]  # fmt: skip


def test_systems_that_the_same_jobs_answer_are_one() -> None:
    cells = [
        cell_experiment_comparisons("a", 1, w=1),
        cell_experiment_comparisons("a", 1, w=2),
        cell_experiment_comparisons("b", 2, w=1),
        cell_experiment_comparisons("b", 2, w=2),
        cell_experiment_comparisons("b", 3, w=3),
    ]
    found = of([*cells, cell_experiment_comparisons("a", 1, w=3)], "a")
    assert [each.name for each in found.systems] == ["a w=1", "b w=1", "b w=3"]
    assert found.pairs == [("b w=1", "a w=1"), ("b w=3", "a w=1")]


def test_without_a_baseline_each_is_compared_with_each() -> None:
    assert of([cell_experiment_comparisons(name, number) for number, name in enumerate("abc", 1)]).pairs == [
        ("a", "b"), ("a", "c"), ("b", "c"),
    ]  # fmt: skip


def test_a_cell_without_a_job_is_in_no_system() -> None:
    found = of(
        [
            cell_experiment_comparisons("a", None),
            cell_experiment_comparisons("b", 2),
            cell_experiment_comparisons("b", 3, "e"),
        ],
        "a",
    )
    assert ([each.name for each in found.systems], found.pairs) == (["b"], [])
    found = of(
        [
            cell_experiment_comparisons("a", None),
            cell_experiment_comparisons("a", 1, "e"),
            cell_experiment_comparisons("b", 2),
            cell_experiment_comparisons("b", 3, "e"),
        ],
        "a",
    )
    assert (found.on("d").pairs, found.on("e").pairs) == ([], [("b", "a")])


def test_one_dataset_in_two_corpora_is_two() -> None:
    found = of([cell_experiment_comparisons("a", 1, corpus="k"), cell_experiment_comparisons("a", 2, corpus="l")])
    assert [dict(each.jobs) for each in found.systems] == [{"d in k": 1, "d in l": 2}]


def test_an_experiment_is_as_its_worst_job_is() -> None:
    assert state_of({"completed": 3}) == "completed"
    assert state_of({"completed": 3, "cancelled": 1}) == "cancelled"
    assert state_of({"completed": 3, "cancelled": 1, "failed": 1}) == "failed"
    assert state_of({"failed": 1, "paused": 1}) == "running"
    assert state_of({"failed": 1, "cancelling": 1}) == "cancelling"
    assert state_of({"running": 1, "cancelling": 1}) == "running"
    assert state_of({}) == "purged"
