"""Expands an experiment into cells, and these into the distinct jobs that answer them. Pure.

Cells with equal requests share one job: those with equal effective parameters, or with weights of the same ratio.
Reranking orders documents by rrf_weight * RRF + quality_weight * quality, so only the ratio of the weights counts.
Of the 11 x 11 weights 0..10, 120 pairs have a ratio, and 65 ratios are distinct.
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any, NamedTuple

import msgspec

from mathrag.errors import Invalid, TooLarge
from mathrag.messages import make_hint
from shared import canonical
from shared.experiments import Experiment, ExperimentDataset, Variant
from shared.params import Params
from shared.pipelines import registry
from shared.runtime.parameters import check_read, parse_params
from shared.runtime.submit import Submission
from shared.storage.configurations import Configuration, Tree, merge

WITHOUT_RATIO = "`rrf_weight` and `quality_weight` are both 0, so they define no order"
WEIGHTS = ("rrf_weight", "quality_weight")


class PlannedCell(NamedTuple):
    """One combination of the grid, and the job that answers it."""

    place: ExperimentDataset
    variant: Variant
    point: Mapping[str, Any]
    """Values of the grid by parameter path."""
    seed: int
    job: int | None
    """Index of its job; cells with equal requests share one."""
    refused: str | None
    """Why no job answers it."""


class Grid(NamedTuple):
    """All cells, in the order of the document, and the jobs that they need."""

    cells: tuple[PlannedCell, ...]
    jobs: tuple[Submission, ...]


class _Combination(NamedTuple):
    place: ExperimentDataset
    variant: Variant
    point: Mapping[str, Any]
    params: Params


def expand(experiment: Experiment, configured: Configuration, roles: Mapping[Any, str], *, most: int) -> Grid:
    """Expand an experiment into its cells and jobs.

    Args:
        configured: default parameters of jobs.
        roles: the operator's default models; naming one of them explicitly makes no distinct job.
        most: upper bound of the cells.

    Raises:
        Invalid: a field cannot be used; the message names it.
        TooLarge: there are more than `most` cells.
    """
    _check(experiment, most)
    combinations = list(_list_combinations(experiment, configured))
    _check_read(experiment, combinations)
    cells: list[PlannedCell] = []
    places: dict[bytes, int] = {}
    jobs: list[Submission] = []
    for place, variant, point, params in combinations:
        pipeline = _find_pipeline(variant)
        ratio = format_ratio(params.rrf_weight, params.quality_weight)
        if ratio is None and pipeline.prepare is not None:
            cells.append(PlannedCell(place, variant, point, params.seed, None, WITHOUT_RATIO))
            continue
        read = pipeline.select_read(msgspec.to_builtins(params))
        if pipeline.prepare is not None:
            read = {name: value for name, value in read.items() if name not in WEIGHTS} | {"weights": ratio}
        models = {**experiment.models, **variant.models}
        key = canonical.digest([place.dataset, place.corpus, variant.pipeline, {**roles, **models}, read])
        job = places.setdefault(key, len(jobs))
        cells.append(PlannedCell(place, variant, point, params.seed, job, None))
        if job == len(jobs):
            jobs.append(
                Submission(
                    name=f"{experiment.name}-{variant.name}-{job + 1}",
                    dataset=place.dataset,
                    corpus=place.corpus,
                    pipeline=variant.pipeline,
                    repeats=experiment.repeats,
                    reuse=experiment.reuse,
                    params=params,
                    configuration=configured.version,
                    models=models,
                    rank=experiment.rank,
                    metadata=experiment.metadata,
                )
            )
    if not jobs:
        raise Invalid(f"`grid`: no cell can run: {WITHOUT_RATIO}", hint="add a weight that is not 0")
    return Grid(tuple(cells), tuple(jobs))


def _check(experiment: Experiment, most: int) -> None:
    """Check the fields of the experiment as a whole."""
    for field, named in (
        ("variants", [variant.name for variant in experiment.variants]),
        ("datasets", [f"{place.dataset} ({place.corpus})" for place in experiment.datasets]),
    ):
        if twice := sorted({name for name in named if named.count(name) > 1}):
            raise Invalid(f"`{field}`: {twice[0]!r} is given twice", hint="give each its own name, or leave one out")
    names = [each.name for each in experiment.variants]
    if experiment.baseline is not None and experiment.baseline not in names:
        hint = make_hint(experiment.baseline, names, f"use one of `variants`: {', '.join(names)}")
        raise Invalid(f"`baseline`: unknown variant {experiment.baseline!r}", hint=hint)
    if experiment.seeds is not None and "seed" in experiment.grid:
        raise Invalid("`grid.seed`: seeds belong in `seeds`", hint="remove `grid.seed`")
    for path in experiment.grid:
        _check_path(path)
    sizes = {
        "datasets": len(experiment.datasets), "variants": len(experiment.variants),
        "seeds": len(experiment.seeds or [0]),
        **{path: len(values) for path, values in experiment.grid.items()},
    }  # fmt: skip
    if (cells := prod(sizes.values())) > most:
        factors = " x ".join(f"{size} {name}" for name, size in sizes.items() if size > 1)
        raise TooLarge(
            f"`grid`: {factors} are {cells} cells, more than `limits.cells` allows ({most})",
            hint="use fewer values, or several experiments",
        )


def _check_read(experiment: Experiment, combinations: Sequence[_Combination]) -> None:
    """Check that at least one cell reads each parameter of the experiment and of the grid, and that at least one cell
    of each variant reads the variant's own.
    """
    cells = {variant.name: list[tuple[str, Params]]() for variant in experiment.variants}
    for each in combinations:
        cells[each.variant.name].append((each.variant.pipeline, each.params))
    every = [cell for of_variant in cells.values() for cell in of_variant]
    check_read(experiment.params, every)
    check_read(dict.fromkeys(experiment.grid), every, "grid")
    for variant in experiment.variants:
        check_read(variant.params, cells[variant.name], f"variants.{variant.name}.params")
    if experiment.seeds is not None:
        try:
            check_read({"seed": experiment.seeds}, every)
        except Invalid as error:
            raise Invalid(error.message.replace("`params.seed`", "`seeds`"), hint="leave `seeds` out") from error


def _check_path(path: str) -> None:
    """Check that a path leads to one parameter, or to an entry of a parameter that holds entries."""
    group: Any = Params()
    walked = "params"
    for name in path.split("."):
        if not isinstance(group, msgspec.Struct):
            break
        known = group.__struct_fields__
        if name not in known:
            hint = make_hint(name, known, f"fields of `{walked}`: {', '.join(sorted(known))}")
            raise Invalid(f"`grid.{path}`: unknown parameter", hint=hint)
        group, walked = getattr(group, name), f"{walked}.{name}"
    if isinstance(group, msgspec.Struct):
        listed = ", ".join(sorted(group.__struct_fields__))
        raise Invalid(f"`grid.{path}`: is a group of parameters", hint=f"name one of them: {listed}")


def _list_combinations(experiment: Experiment, configured: Configuration) -> Iterator[_Combination]:
    points = [dict(zip(experiment.grid, values, strict=True)) for values in product(*experiment.grid.values())]
    seeds: list[Tree] = [{}] if experiment.seeds is None else [{"seed": seed} for seed in experiment.seeds]
    for place, variant, point, seed in product(experiment.datasets, experiment.variants, points, seeds):
        tree = merge(experiment.params, variant.params)
        for path, value in point.items():
            tree = merge(tree, _nest_value(path, value))
        try:
            _find_pipeline(variant)
            params = parse_params(merge(tree, seed), configured.params)
        except Invalid as error:
            at = "".join(f" at {path}={msgspec.json.encode(value).decode()}" for path, value in point.items())
            raise Invalid(f"`variants.{variant.name}`:{at} {error.message}", hint=error.hint) from error
        yield _Combination(place, variant, point, params)


def _nest_value(path: str, value: Any) -> dict[str, Any]:
    name, _, rest = path.partition(".")
    return {name: _nest_value(rest, value) if rest else value}


def _find_pipeline(variant: Variant) -> registry.Registered:
    try:
        return registry.get(variant.pipeline)
    except registry.UnknownPipeline as error:
        listed = "list the pipelines with `mathrag pipeline list`"
        hint = make_hint(variant.pipeline, registry.list_offered(), listed)
        raise Invalid(f"`pipeline`: {error}", hint=hint) from error


def format_ratio(rrf: float, quality: float) -> str | None:
    """Return the ratio of two weights, exact as written; None if both are 0."""
    if not quality:
        return "1:0" if rrf else None
    return str(Fraction(repr(rrf)) / Fraction(repr(quality)))
