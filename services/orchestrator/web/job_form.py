"""The forms about a job: which names and parameters they offer, and what their values ask for."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from services.orchestrator.api import parameters
from services.orchestrator.api.submissions import JobRequest
from services.orchestrator.deps import Deps
from shared.contracts.params import Params
from shared.docstrings import docstrings
from shared.errors import Invalid
from shared.pipelines import registry
from shared.runtime.drafting import Submission
from shared.runtime.parameters import params_of
from shared.storage import configurations, corpora, datasets, pages

_SCHEMA: dict[str, Any] = JobRequest.model_json_schema()["properties"]
_TEXTS = docstrings(JobRequest)
MODELS = "models."
"""Of a role's model in forms and addresses."""
COPIED = ("name", "dataset", "corpus", "pipeline", "limit", "repeats", "reuse", "rank")
USUAL = "mathrag-gate"
"""The pipeline that a form begins with."""


def _whole(name: str) -> parameters.Parameter:
    """A number of a job, with its bounds of the API."""
    schema = _SCHEMA[name]
    bounds = schema["anyOf"][0] if "anyOf" in schema else schema
    low, high = bounds.get("minimum"), bounds.get("maximum")
    return parameters.Parameter(name, "whole", schema["default"], _TEXTS.get(name, ""), low=low, high=high, prefix="")


NUMBERS = tuple(_whole(name) for name in ("limit", "repeats", "rank"))
REUSE = parameters.Parameter("reuse", "choice", "all", _TEXTS["reuse"], choices=("all", "none"), prefix="")


class Choices(NamedTuple):
    """Newest first."""

    datasets: list[str]
    corpora: list[str]
    pipelines: tuple[str, ...]
    models: list[str]
    configured: Params
    """What counts where nothing is set."""
    pipeline: str = USUAL


async def choices(deps: Deps) -> Choices:
    """The names that a job may have."""
    there = await datasets.listed(deps.database, pages.LARGEST)
    searched = await corpora.listed(deps.database, pages.LARGEST)
    return Choices(
        datasets=[each.name for each in there.data], corpora=[each.name for each in searched.data],
        pipelines=registry.offered(), models=sorted(deps.settings.models),
        configured=await configured(deps),
    )  # fmt: skip


async def configured(deps: Deps) -> Params:
    """The parameters of a job that names none."""
    return params_of({}, (await configurations.holding(deps.database)).params)


def read_by(pipeline: str, usual: Params) -> list[parameters.Section]:
    """The parameters that the pipeline reads; all, where there is no such pipeline."""
    known = registry.get(pipeline) if pipeline in registry.offered() else None
    return parameters.sections(lambda path: known is None or not known.ignored(path), usual)


def body(values: Mapping[str, str]) -> dict[str, Any]:
    """The request of a form's values as the API takes it; what the form does not know is refused there, by its name.

    Raises:
        Invalid: a line of the metadata is no pair.
    """
    own = {name: value for name, value in values.items() if not name.startswith((parameters.PREFIX, MODELS))}
    models = {name.removeprefix(MODELS): value for name, value in values.items() if name.startswith(MODELS)}
    metadata = _pairs(own.pop("metadata", ""))
    return {"name": "", "dataset": "", **own, "params": parameters.tree(values), "models": models, "metadata": metadata}


def written(submission: Submission, usual: Params) -> dict[str, str]:
    """The values that make the same request; of the parameters those that its pipeline reads and that are not usual."""
    read = parameters.names(read_by(submission.pipeline, usual))
    before, asked = (parameters.flat(msgspec.to_builtins(each)) for each in (usual, submission.params))
    own = {name: getattr(submission, name) for name in COPIED}
    values = {name: str(value) for name, value in own.items() if value is not None}
    values |= {f"{MODELS}{role}": name for role, name in submission.models.items()}
    values |= {name: value for name, value in asked.items() if name in read and value != before.get(name)}
    metadata = "\n".join(f"{key}={value}" for key, value in submission.metadata.items())
    return {**values, "metadata": metadata} if metadata else values


def _pairs(lines: str) -> dict[str, str]:
    pairs = {}
    for line in filter(None, (each.strip() for each in lines.splitlines())):
        key, equals, value = line.partition("=")
        if not equals:
            raise Invalid(f"`metadata`: {line!r} is no pair", hint="write KEY=VALUE, one on each line")
        pairs[key.strip()] = value.strip()
    return pairs
