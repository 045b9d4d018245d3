"""A pilot runs candidate pipelines on a few questions, to choose the one that answers all of them.

A pilot is an experiment with `hybrid` as its baseline, over questions drawn from a dataset. The others are kept as a
separate dataset, because the best of several candidates looks better on the questions that chose it.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mathrag.errors import Invalid, NotFound
from services.orchestrator.experiments.lifecycle import (
    SubmittedExperiment,
    draft_jobs,
    expand_in_thread,
    submit_once,
)
from shared.experiments import Experiment, ExperimentDataset, Name, Variant
from shared.fields import WHOLE, Key, Stored
from shared.params import QUALITY_ALONE
from shared.settings import Settings
from shared.storage import datasets, experiments
from shared.storage.database import Database, KeyedRequest, find_earlier

BASELINE = "hybrid"
REST = "-rest"
"""End of the name of the dataset with the questions that were not drawn."""
CANDIDATES = (
    Variant(name="closed-book", pipeline="closed-book"),
    Variant(name="sparse", pipeline="sparse"),
    Variant(name="dense", pipeline="dense"),
    Variant(name=BASELINE, pipeline="hybrid"),
    # As in the paper, quality alone reorders all candidates: by both scorers, of which the gate chooses one without
    # knowing the right answers.
    Variant(name="quality-rules", pipeline="mathrag-gate", params={"quality": "rules", **QUALITY_ALONE}),
    Variant(name="quality-judge", pipeline="mathrag-gate", params={"quality": "judge", **QUALITY_ALONE}),
    # Documents that the judge model finds irrelevant to the question come last; quality reorders nothing.
    Variant(
        name="relevance", pipeline="mathrag-gate",
        params={"quality": "rules", "rated": 1, "rerank": {"by": "rating", "floor": 0.5}},
    ),
    Variant(name="mathrag-gate", pipeline="mathrag-gate"),
    Variant(name="crag", pipeline="crag"),
    Variant(name="enhanced", pipeline="enhanced"),
    Variant(name="enhanced-crag", pipeline="enhanced-crag"),
    Variant(name="hyde", pipeline="hyde"),
)  # fmt: skip
"""The pipelines that a pilot tries by default; those that ask the judge model are left out without one."""
FEWEST, MOST = 20, 1000
"""Questions of a pilot: of fewer than 20, McNemar's test separates next to nothing."""


class Pilot(BaseModel):
    """A pilot to run."""

    model_config = ConfigDict(
        extra="forbid", strict=True, use_attribute_docstrings=True,
        json_schema_extra={"example": {"dataset": "math-500", "corpus": "math", "questions": 40}},
    )  # fmt: skip

    dataset: Stored
    """Dataset to draw questions from."""
    corpus: Stored | None = None
    """Corpus to search; null if no variant searches."""
    name: Name | None = None
    """Name of the experiment and of the dataset of its questions; by default `pilot-DATASET`."""
    questions: Annotated[int, Field(ge=FEWEST, le=MOST), WHOLE] = 40
    """Number of questions to draw at random; a smaller dataset is used as a whole."""
    seed: Annotated[int, Field(ge=0, lt=1 << 63), WHOLE] = 0
    """Seed of the draw."""
    variants: Annotated[list[Variant], Field(max_length=20)] = []
    """Variants to try instead of the default candidates; `hybrid` is added unless a variant has this name."""
    params: dict[str, Any] = {}
    """Parameters of every job that reads them, such as {"context_size": 3}."""
    models: dict[Key, Stored] = {}
    """Model names by role, for every job."""


class SubmittedPilot(NamedTuple):
    """The experiment of a pilot."""

    experiment: SubmittedExperiment
    rest: str | None
    """Dataset of the questions that were not drawn; None if all are asked."""
    left_out: Mapping[str, str]
    """Why default candidates are not tried, by name."""


async def submit_pilot(
    database: Database, settings: Settings, asked: Pilot, submitted_by: str | None, keyed: KeyedRequest | None
) -> SubmittedPilot:
    """Draw the questions and submit the jobs of all candidates, or return the experiment of an earlier identical
    request.

    Raises:
        Invalid, NotFound: a field cannot be used; the message names it.
        Conflict: the name is taken.
        TooLarge, TooMany: a limit of the operator is exceeded.
        IdempotencyMismatch, InProgress: see `idempotency.run_once`.
    """
    if keyed is not None and (earlier := await _find_earlier(database, asked, keyed)) is not None:
        return earlier
    variants = asked.variants or list(CANDIDATES)
    if BASELINE not in [each.name for each in variants]:
        variants = [Variant(name=BASELINE, pipeline="hybrid"), *variants]
    if len(variants) == 1:
        raise Invalid(f"`variants`: there is nothing to compare {BASELINE} with", hint="add a variant, or give none")
    experiment = _make_experiment(asked, variants)
    found = await datasets.load_details(database, asked.dataset)
    if not found.counts.gold and not asked.params.get("metrics"):
        hint = "name a metric that needs none, such as `params.metrics.names: [faithfulness]`"
        raise Invalid(f"`dataset`: {asked.dataset!r} has no gold answers to compare pipelines by", hint=hint)
    left_out = {} if asked.variants else await _find_impossible(database, settings, experiment)
    experiment.variants = [each for each in variants if each.name not in left_out]
    if len(experiment.variants) == 1:
        reasons = "; ".join(dict.fromkeys(left_out.values()))
        raise Invalid(f"there is nothing to compare {BASELINE} with: {reasons}")
    await _check(database, settings, experiment)  # before questions are stored
    rest = None
    if found.items > asked.questions:
        rest = f"{experiment.name}{REST}"
        await datasets.draw(database, asked.dataset, experiment.name, asked.questions, asked.seed, rest)
        experiment.datasets = [ExperimentDataset(dataset=experiment.name, corpus=asked.corpus)]
    return SubmittedPilot(await submit_once(database, settings, experiment, submitted_by, keyed), rest, left_out)


async def _find_earlier(database: Database, asked: Pilot, keyed: KeyedRequest) -> SubmittedPilot | None:
    """Return the experiment of an earlier identical request, even if it could not be submitted now."""
    async with database.statement() as connection:
        job = await find_earlier(connection, keyed)
        if job is None:
            return None
        number = await experiments.find_experiment_of_job(connection, job)
        document = await experiments.load_document(connection, number)
    tried, questions = {each["name"] for each in document["variants"]}, document["datasets"][0]["dataset"]
    candidates = () if asked.variants else CANDIDATES
    return SubmittedPilot(
        SubmittedExperiment(number, replayed=True),
        rest=None if questions == asked.dataset else f"{questions}{REST}",
        left_out={each.name: "it could not be submitted" for each in candidates if each.name not in tried},
    )


def _make_experiment(asked: Pilot, variants: Sequence[Variant]) -> Experiment:
    try:
        return Experiment(
            name=asked.name or f"pilot-{asked.dataset}", variants=[*variants], baseline=BASELINE,
            datasets=[ExperimentDataset(dataset=asked.dataset, corpus=asked.corpus)],
            params=asked.params, models=asked.models,
        )  # fmt: skip
    except ValidationError as error:  # its name alone has not been checked yet
        hint = "give the pilot a `name` of at most 60 letters, digits, `.`, `_` and `-`"
        raise Invalid(f"`name`: no pilot can be called 'pilot-{asked.dataset}'", hint=hint) from error


async def _find_impossible(database: Database, settings: Settings, asked: Experiment) -> dict[str, str]:
    """Return why default candidates cannot be submitted here, such as for want of a judge model.

    Raises:
        Invalid, NotFound: the baseline cannot be submitted.
    """
    reasons = {}
    # A metric cannot be measured on every pipeline; other parameters may be for other pipelines.
    params = {name: value for name, value in asked.params.items() if name == "metrics"}
    for variant in asked.variants:
        alone = asked.model_copy(update={"variants": [variant], "baseline": None, "params": params})
        try:
            await _check(database, settings, alone)
        except (Invalid, NotFound) as error:
            if variant.name == BASELINE:
                raise
            reasons[variant.name] = error.message
    return reasons


async def _check(database: Database, settings: Settings, asked: Experiment) -> None:
    """Raise what its submission would raise."""
    grid = await expand_in_thread(database, settings, asked)
    async with database.transaction() as connection:
        await draft_jobs(connection, settings, grid.jobs)
