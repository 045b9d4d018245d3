"""What varies within an experiment, and how its cells are laid out."""

from typing import Any

import pytest

from services.orchestrator.experiments.report import ChosenAxes, choose, find_axes, split_by_figure
from shared.errors import Invalid
from shared.storage.experiments import Cell


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
