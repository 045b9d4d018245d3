"""What the forms about a job offer: the names that there are, and the parameters that a pipeline reads."""

from typing import NamedTuple

from services.orchestrator.api import parameters
from services.orchestrator.deps import Deps
from shared.contracts.params import Params
from shared.pipelines import registry
from shared.runtime.parameters import params_of
from shared.storage import configurations, corpora, datasets, pages

MODELS = "models."
"""Of a role's model in forms and addresses."""
USUAL = "mathrag-gate"
"""The pipeline that a form begins with."""


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
    configured = params_of({}, (await configurations.holding(deps.database)).params)
    return Choices(
        datasets=[each.name for each in there.data], corpora=[each.name for each in searched.data],
        pipelines=registry.offered(), models=sorted(deps.settings.models), configured=configured,
    )  # fmt: skip


def read_by(pipeline: str, configured: Params) -> list[parameters.Section]:
    """The parameters that the pipeline reads; all, where there is no such pipeline."""
    known = registry.get(pipeline) if pipeline in registry.offered() else None
    return parameters.sections(lambda path: known is None or not known.ignored(path), configured)
