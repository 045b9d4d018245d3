"""From an experiment to its cells, and from these to the distinct jobs that answer them. Pure.

Cells that ask the same share one job: equal effective parameters, or weights of one ratio. Reranking orders documents
by rrf_weight * RRF + quality_weight * quality, so only the weights' ratio counts. Of the 11 x 11 weights 0..10, 120
pairs have a ratio, and 65 ratios are distinct.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any, NamedTuple

import msgspec

from shared import suggestions
from shared.contracts import canonical
from shared.contracts.experiments import Experiment, ExperimentDataset, Variant
from shared.contracts.params import Params
from shared.errors import Invalid, TooLarge
from shared.pipelines import registry
from shared.runtime.drafting import Submission
from shared.runtime.parameters import check_read, params_of
from shared.storage.configurations import Configuration, Tree, merged

WITHOUT_RATIO = "`rrf_weight` and `quality_weight` are both 0: no order follows from them"
WEIGHTS = ("rrf_weight", "quality_weight")


class Cell(NamedTuple):
    """One combination, and what answers it."""

    place: ExperimentDataset
    variant: Variant
    point: Mapping[str, Any]
    """Values of the grid by parameter path."""
    seed: int
    job: int | None
    """Its place among the jobs; cells that ask the same have the same."""
    refused: str | None
    """Why there is none."""


class Grid(NamedTuple):
    """All cells, in the order of the document, and the jobs that they need."""

    cells: tuple[Cell, ...]
    jobs: tuple[Submission, ...]


class _Asked(NamedTuple):
    place: ExperimentDataset
    variant: Variant
    point: Mapping[str, Any]
    params: Params


def expand(asked: Experiment, configured: Configuration, roles: Mapping[Any, str], *, most: int) -> Grid:
    """The cells and jobs of `asked`.

    Args:
        configured: parameters that jobs get which nobody names.
        roles: the operator's default models, so that naming one asks for nothing else.
        most: cells that an experiment may have.

    Raises:
        Invalid: a field cannot be used; the message names it.
        TooLarge: more cells than `most`.
    """
    _check(asked, most)
    cells: list[Cell] = []
    places: dict[bytes, int] = {}
    jobs: list[Submission] = []
    for each in _combinations(asked, configured):
        job, refused = None, _refused(each)
        if refused is None:
            job = places.setdefault(_identity(each, {**roles, **_models(asked, each.variant)}), len(jobs))
        if job == len(jobs):
            jobs.append(_submission(asked, each, job + 1, configured.version))
        cells.append(Cell(each.place, each.variant, each.point, each.params.seed, job, refused))
    if not jobs:
        raise Invalid(f"`grid`: no cell can run: {WITHOUT_RATIO}", hint="add a weight that is not 0")
    return Grid(tuple(cells), tuple(jobs))


def _check(asked: Experiment, most: int) -> None:
    """What no single cell can say."""
    for field, names in (
        ("variants", [variant.name for variant in asked.variants]),
        ("datasets", [f"{place.dataset} ({place.corpus})" for place in asked.datasets]),
    ):
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise Invalid(
                f"`{field}`: {twice[0]!r} is there twice", hint="give each a name of its own, or leave one out"
            )
    if asked.baseline is not None and asked.baseline not in (names := [each.name for each in asked.variants]):
        hint = suggestions.hint(asked.baseline, names, f"one of `variants`: {', '.join(names)}")
        raise Invalid(f"`baseline`: no variant {asked.baseline!r}", hint=hint)
    if asked.seeds is not None and "seed" in asked.grid:
        raise Invalid("`grid.seed`: seeds are given in `seeds`", hint="take one of both away")
    for path in asked.grid:
        _check_path(path)
    _check_read(asked)
    _check_size(asked, most)


def _check_read(asked: Experiment) -> None:
    """A parameter of all variants has to be read by one of them; a variant's own by its pipeline."""
    pipelines = [variant.pipeline for variant in asked.variants]
    check_read(asked.params, pipelines)
    check_read(dict.fromkeys(asked.grid), pipelines, "grid")
    for variant in asked.variants:
        check_read(variant.params, [variant.pipeline], f"variants.{variant.name}.params")


def _check_path(path: str) -> None:
    """A path leads to one parameter, or to an entry of one that holds entries."""
    group: Any = Params()
    walked = "params"
    for name in path.split("."):
        if not isinstance(group, msgspec.Struct):
            break
        known = group.__struct_fields__
        if name not in known:
            hint = suggestions.hint(name, known, f"fields of `{walked}`: {_listed(known)}")
            raise Invalid(f"`grid.{path}`: there is no such parameter", hint=hint)
        group, walked = getattr(group, name), f"{walked}.{name}"
    if isinstance(group, msgspec.Struct):
        listed = _listed(group.__struct_fields__)
        raise Invalid(f"`grid.{path}`: is a group of parameters", hint=f"name one of them: {listed}")


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(sorted(names))


def _check_size(asked: Experiment, most: int) -> None:
    sizes = {
        "datasets": len(asked.datasets), "variants": len(asked.variants), "seeds": len(asked.seeds or [0]),
        **{path: len(values) for path, values in asked.grid.items()},
    }  # fmt: skip
    if (cells := prod(sizes.values())) > most:
        factors = " x ".join(f"{size} {name}" for name, size in sizes.items() if size > 1)
        raise TooLarge(
            f"`grid`: {factors} are {cells} cells, more than `limits.cells` allows ({most})",
            hint="fewer values, or several experiments",
        )


def _combinations(asked: Experiment, configured: Configuration) -> Iterator[_Asked]:
    points = [dict(zip(asked.grid, values, strict=True)) for values in product(*asked.grid.values())]
    seeds: list[Tree] = [{}] if asked.seeds is None else [{"seed": seed} for seed in asked.seeds]
    for place, variant, point, seed in product(asked.datasets, asked.variants, points, seeds):
        tree = merged(asked.params, variant.params)
        for path, value in point.items():
            tree = merged(tree, _branch(path, value))
        yield _Asked(place, variant, point, _params(merged(tree, seed), configured, variant, point))


def _branch(path: str, value: Any) -> dict[str, Any]:
    name, _, rest = path.partition(".")
    return {name: _branch(rest, value) if rest else value}


def _params(tree: Tree, configured: Configuration, variant: Variant, point: Mapping[str, Any]) -> Params:
    """Raises Invalid with the variant and the point of the grid, besides the parameter."""
    try:
        _pipeline(variant)
        return params_of(tree, configured.params)
    except Invalid as error:
        at = "".join(f" at {path}={_said(value)}" for path, value in point.items())
        raise Invalid(f"`variants.{variant.name}`:{at} {error.message}", hint=error.hint) from error


def _said(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _pipeline(variant: Variant) -> registry.Registered:
    try:
        return registry.get(variant.pipeline)
    except registry.UnknownPipeline as error:
        hint = suggestions.hint(variant.pipeline, registry.offered(), "mathrag pipeline list")
        raise Invalid(f"`pipeline`: {error}", hint=hint) from error


def _refused(asked: _Asked) -> str | None:
    known = ratio(asked.params.rrf_weight, asked.params.quality_weight) is not None
    return None if known or _pipeline(asked.variant).prepare is None else WITHOUT_RATIO


def _identity(asked: _Asked, models: Mapping[Any, str]) -> bytes:
    """Equal for cells that ask the same."""
    place, variant = asked.place, asked.variant
    return canonical.digest([place.dataset, place.corpus, variant.pipeline, models, _effective(asked)])


def _effective(asked: _Asked) -> dict[str, Any]:
    """Parameters without those that the pipeline does not read, and weights as their ratio, exact as written."""
    pipeline = _pipeline(asked.variant)
    params: dict[str, Any] = msgspec.to_builtins(asked.params)
    read = {name.partition(".")[0] for name in pipeline.reads or params}
    params = {name: value for name, value in params.items() if name in read}
    if pipeline.prepare is None:
        return params
    weights = [params.pop(name) for name in WEIGHTS]
    return {**params, "weights": ratio(*weights)}


def ratio(rrf: float, quality: float) -> str | None:
    """Of two weights, exact as they are written; None: both are 0."""
    if not quality:
        return "1:0" if rrf else None
    return str(Fraction(repr(rrf)) / Fraction(repr(quality)))


def _models(asked: Experiment, variant: Variant) -> dict[str, str]:
    return {**asked.models, **variant.models}


def _submission(asked: Experiment, each: _Asked, at: int, configuration: int) -> Submission:
    return Submission(
        name=f"{asked.name}-{each.variant.name}-{at}",
        dataset=each.place.dataset,
        corpus=each.place.corpus,
        pipeline=each.variant.pipeline,
        repeats=asked.repeats,
        reuse=asked.reuse,
        params=each.params,
        configuration=configuration,
        models=_models(asked, each.variant),
        rank=asked.rank,
        metadata=asked.metadata,
    )
