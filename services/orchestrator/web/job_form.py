"""The forms about a job: the names and parameters that they offer, and the request that their values stand for."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from services.orchestrator.api import parameters
from services.orchestrator.api.submissions import JobRequest
from services.orchestrator.deps import Deps
from shared.docstrings import read_docstrings
from shared.errors import Invalid
from shared.params import Params
from shared.pipelines import registry
from shared.runtime.parameters import parse_params
from shared.runtime.submit import Submission
from shared.storage import configurations, database
from shared.storage import corpora as stored_corpora
from shared.storage import datasets as stored_datasets

_SCHEMA: dict[str, Any] = JobRequest.model_json_schema()["properties"]
_TEXTS = read_docstrings(JobRequest)
MODELS = "models."
"""Prefix of a role's model in forms and addresses."""
REQUEST_FIELDS = ("name", "dataset", "corpus", "pipeline", "limit", "repeats", "reuse", "rank")
USUAL = "mathrag-gate"
"""Pipeline that a form starts with."""


def _make_integer_field(name: str) -> parameters.Parameter:
    """Return an integer field of a job with the API's bounds."""
    schema = _SCHEMA[name]
    bounds = schema["anyOf"][0] if "anyOf" in schema else schema
    low, high = bounds.get("minimum"), bounds.get("maximum")
    return parameters.Parameter(name, "whole", schema["default"], _TEXTS.get(name, ""), low=low, high=high, prefix="")


NUMBERS = tuple(_make_integer_field(name) for name in ("limit", "repeats", "rank"))
REUSE = parameters.Parameter("reuse", "choice", "all", _TEXTS["reuse"], choices=("all", "none"), prefix="")


class Choices(NamedTuple):
    """Names that the form offers, newest first."""

    datasets: list[str]
    corpora: list[str]
    pipelines: tuple[str, ...]
    models: list[str]
    configured: Params
    """Parameters that apply to fields that are left empty."""
    pipeline: str = USUAL


async def load_choices(deps: Deps) -> Choices:
    """Return the names that the form offers."""
    there = await stored_datasets.list_datasets(deps.database, database.LARGEST)
    searched = await stored_corpora.list_corpora(deps.database, database.LARGEST)
    return Choices(
        datasets=[each.name for each in there.data], corpora=[each.name for each in searched.data],
        pipelines=registry.list_offered(), models=sorted(deps.settings.models),
        configured=await load_default_params(deps),
    )  # fmt: skip


async def load_default_params(deps: Deps) -> Params:
    """Return the parameters of a job that sets none."""
    return parse_params({}, (await configurations.load_newest(deps.database)).params)


def select_sections(pipeline: str, usual: Params) -> list[parameters.Section]:
    """Return the parameters that the pipeline reads; all, if there is no such pipeline."""
    known = registry.get(pipeline) if pipeline in registry.list_offered() else None
    return parameters.list_sections(lambda path: known is None or not known.ignores(path), usual)


def make_request_body(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the API's request body for a form's values. Fields that the form does not know are passed on; the API
    refuses them by name.

    Raises:
        Invalid: a line of the metadata is not of the form KEY=VALUE.
    """
    own = {name: value for name, value in values.items() if not name.startswith((parameters.PREFIX, MODELS))}
    models = {name.removeprefix(MODELS): value for name, value in values.items() if name.startswith(MODELS)}
    metadata = _parse_pairs(own.pop("metadata", ""))
    return {"name": "", "dataset": "", **own, "params": parameters.nest(values), "models": models, "metadata": metadata}


def format_submission(submission: Submission, usual: Params) -> dict[str, str]:
    """Return the form values that make the same request, with those parameters that its pipeline reads and that
    differ from `usual`.
    """
    read = parameters.get_names(select_sections(submission.pipeline, usual))
    before, requested = (parameters.flatten(msgspec.to_builtins(each)) for each in (usual, submission.params))
    own = {name: getattr(submission, name) for name in REQUEST_FIELDS}
    values = {name: str(value) for name, value in own.items() if value is not None}
    values |= {f"{MODELS}{role}": name for role, name in submission.models.items()}
    values |= {name: value for name, value in requested.items() if name in read and value != before.get(name)}
    metadata = "\n".join(f"{key}={value}" for key, value in submission.metadata.items())
    return {**values, "metadata": metadata} if metadata else values


def _parse_pairs(lines: str) -> dict[str, str]:
    pairs = {}
    for line in filter(None, (each.strip() for each in lines.splitlines())):
        key, equals, value = line.partition("=")
        if not equals:
            raise Invalid(f"`metadata`: {line!r} is not of the form KEY=VALUE", hint="write one KEY=VALUE on each line")
        pairs[key.strip()] = value.strip()
    return pairs
