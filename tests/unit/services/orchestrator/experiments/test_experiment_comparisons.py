"""Which systems of an experiment are compared with which, and over which datasets."""

import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from services.orchestrator.experiments.report import Family, make_family
from shared.storage.experiments import Cell, Member, Standing, state_of
from shared.storage.jobs import RequestCounts

NOW = datetime(2026, 11, 22, tzinfo=UTC)
NONE = RequestCounts(total=0, completed=0, failed=0, cancelled=0, in_progress=0, unparsed=0)


def cell(variant: str, job: int | None, dataset: str = "d", seed: int = 0, corpus: str = "c", **point: Any) -> Cell:
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
    found = of([cell("a", 1, "d"), cell("b", 2, "d"), cell("a", 3, "e"), cell("b", 4, "e")], "a")
    assert {each.name: each.jobs for each in found.systems} == {"a": {"d": 1, "e": 3}, "b": {"d": 2, "e": 4}}
    assert found.pairs == [("b", "a")]
    assert {each.name: each.jobs for each in found.on("e").systems} == {"a": {"e": 3}, "b": {"e": 4}}


def test_a_system_is_compared_with_the_baseline_at_its_own_point_and_seed() -> None:
    cells = [
        cell(variant, number * 10 + place, size=size, seed=seed)
        for number, variant in enumerate("ab", 1) for place, (size, seed) in enumerate([(1, 0), (3, 0), (3, 1)])
    ]  # fmt: skip
    assert of(cells, "a").pairs == [
        ("b size=1 seed=0", "a size=1 seed=0"), ("b size=3 seed=0", "a size=3 seed=0"),
        ("b size=3 seed=1", "a size=3 seed=1"),
    ]  # fmt: skip


def test_systems_that_the_same_jobs_answer_are_one() -> None:
    cells = [cell("a", 1, w=1), cell("a", 1, w=2), cell("b", 2, w=1), cell("b", 2, w=2), cell("b", 3, w=3)]
    found = of([*cells, cell("a", 1, w=3)], "a")
    assert [each.name for each in found.systems] == ["a w=1", "b w=1", "b w=3"]
    assert found.pairs == [("b w=1", "a w=1"), ("b w=3", "a w=1")]


def test_without_a_baseline_each_is_compared_with_each() -> None:
    assert of([cell(name, number) for number, name in enumerate("abc", 1)]).pairs == [
        ("a", "b"), ("a", "c"), ("b", "c"),
    ]  # fmt: skip


def test_a_cell_without_a_job_is_in_no_system() -> None:
    found = of([cell("a", None), cell("b", 2), cell("b", 3, "e")], "a")
    assert ([each.name for each in found.systems], found.pairs) == (["b"], [])
    found = of([cell("a", None), cell("a", 1, "e"), cell("b", 2), cell("b", 3, "e")], "a")
    assert (found.on("d").pairs, found.on("e").pairs) == ([], [("b", "a")])


def test_one_dataset_in_two_corpora_is_two() -> None:
    found = of([cell("a", 1, corpus="k"), cell("a", 2, corpus="l")])
    assert [dict(each.jobs) for each in found.systems] == [{"d in k": 1, "d in l": 2}]


def test_an_experiment_is_as_its_worst_job_is() -> None:
    assert state_of({"completed": 3}) == "completed"
    assert state_of({"completed": 3, "cancelled": 1}) == "cancelled"
    assert state_of({"completed": 3, "cancelled": 1, "failed": 1}) == "failed"
    assert state_of({"failed": 1, "paused": 1}) == "running"
    assert state_of({"failed": 1, "cancelling": 1}) == "cancelling"
    assert state_of({"running": 1, "cancelling": 1}) == "running"
    assert state_of({}) == "purged"
