"""Drafts of jobs: everything that a submission names is looked up and pinned."""

import uuid
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from anyio import to_thread
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared import suggestions
from shared.contracts import canonical
from shared.contracts.calls import Judge
from shared.contracts.params import Params
from shared.contracts.samples import Item
from shared.errors import Invalid
from shared.pipelines import registry
from shared.pipelines.binding import Binding, Pin, RepeatedDraw, bind
from shared.pipelines.imported import IMPORTED
from shared.pipelines.mathrag_gate import RUBRIC
from shared.pipelines.mine_rules import MINE_RULES
from shared.rag.graders import marking
from shared.runtime import admission, guiding, judge_calibration, models, thresholds
from shared.runtime.acceptance import accepting
from shared.runtime.jobs import JobSpec
from shared.runtime.price import dry_run
from shared.settings import Settings
from shared.storage import rule_banks
from shared.storage.unknown import not_found

DATASET = text("SELECT id, items, grader FROM datasets WHERE name = :name")


CORPUS = text("SELECT id FROM corpora WHERE name = :name")


CORPUS_SIZE = text("SELECT documents FROM corpora WHERE id = :corpus")


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that were stored for a job that is about to be inserted."""

    job: uuid.UUID
    """The id that it will have."""
    answers: int
    missing: int
    """Items of the dataset that have none."""
    hash: str
    """SHA-256 in hex over all of them, in the file's order."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A job as it is asked for."""

    name: str
    dataset: str
    pipeline: str
    corpus: str | None = None
    limit: int | None = None
    """Only the first so many items of the dataset; None: all."""
    repeats: int = 1
    reuse: str = "all"
    """"all" replies of other jobs, or "none"."""
    params: Params = Params()
    configuration: int | None = None
    """Version of the configuration that filled in what was not named; None: nothing had to be."""
    models: Mapping[str, str] = {}
    """Model names by role; the operator's defaults fill the rest."""
    rank: int = 100
    metadata: Mapping[str, str] = {}
    """What the submitter wants to find again; never read by the runtime."""
    online: bool = False
    """One question that somebody waits for: not in the list of jobs."""
    requeued_from: uuid.UUID | None = None
    """The ended job that is done again."""
    experiment: int | None = None
    """Row id of the experiment that it belongs to."""
    graph: str = ""
    """Hash of the graph that a job of `mine-rules` mines; "": of another pipeline."""
    imported: Imported | None = None
    """What a job of `imported` grades; None: of another pipeline."""


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A job that could be inserted: all that it names is there."""

    submission: Submission
    dataset: int
    corpus: int | None
    items: int
    """That are asked, of the dataset's."""
    spec: JobSpec
    """As it would run."""
    code: dict[str, Any]
    """What accepted it, and the submission's limit; kept in `jobs.code`."""

    @property
    def samples(self) -> int:
        """How many it would have."""
        if self.submission.imported is not None:
            return self.submission.imported.answers
        return self.items * self.submission.repeats


class Drafting:
    """Looks up what jobs name, each thing once however many jobs name it; nothing is inserted."""

    def __init__(self, connection: AsyncConnection, settings: Settings) -> None:
        self._connection = connection
        self._settings = settings
        self._known: dict[bytes, Any] = {}

    async def draft(self, submission: Submission, questions: int | None = None) -> Draft:
        """The job as it would run; the operator's default models fill the roles that it does not name.

        Args:
            submission: what it names.
            questions: so many in the place of a dataset's, for a plan.

        Raises:
            NotFound: no such dataset or corpus.
            Invalid: a field cannot be used; the message names it.
        """
        pipeline = _pipeline(submission)
        dataset, items, grader = (0, questions, None) if questions else await self._once(_dataset, submission.dataset)
        submission = _with_grader(submission, grader)
        items = items if submission.limit is None else min(items, submission.limit)
        corpus = await self._once(_corpus, submission.corpus)
        pins = await self._pins(submission, corpus)
        if submission.corpus is not None and not pipeline.ignored("crag.similarity"):
            crag = await self._once(thresholds.pinned, submission.params.crag, submission.corpus)
            params = msgspec.structs.replace(submission.params, crag=crag)
            submission = msgspec.structs.replace(submission, params=params)
        submission = await self._with_judge(pipeline, submission, pins.get("judge"))
        submission = await self._with_guidance(pipeline, submission, corpus, has_judge="judge" in pins)
        # An experiment has a thousand of these, and the schedulers share this event loop.
        spec = await to_thread.run_sync(_probe, submission, pins)
        if pipeline.prepare is not None and corpus is not None:
            admission.check_calibration(submission.params, items, await self._once(_corpus_size, corpus))
        code = await self._once(accepting, self._settings, corpus, submission.configuration)
        asked: dict[str, Any] = {} if submission.limit is None else {"limit": submission.limit}
        if submission.imported is not None:
            asked["imported"] = {name: getattr(submission.imported, name) for name in ("answers", "missing", "hash")}
        return Draft(
            submission=submission, dataset=dataset, corpus=corpus, items=items, spec=spec, code={**code, **asked}
        )

    async def _with_judge(self, pipeline: registry.Registered, submission: Submission, pin: Pin | None) -> Submission:
        """With what the judge's ratings are worth by labels; a job that is done again keeps what it was given."""
        if pipeline.ignored("gate.labels"):
            return submission
        if submission.params.gate.calibrated is not None and submission.requeued_from is None:
            raise Invalid("`params.gate.calibrated`: is filled in at submission", hint="leave it out")
        params = await self._once(judge_calibration.pinned, submission.params, pin)
        return msgspec.structs.replace(submission, params=params)

    async def _with_guidance(
        self, pipeline: registry.Registered, submission: Submission, corpus: int | None, *, has_judge: bool
    ) -> Submission:
        """With what a pipeline that follows rules is given; a job that is done again is given it anew."""
        if pipeline.reads is None or pipeline.ignored("rulerag.phrases"):
            return submission
        params = submission.params
        if params.rulerag.phrases and submission.requeued_from is None:
            raise Invalid("`params.rulerag.phrases`: is filled in at submission", hint="leave it out")
        rulerag = await self._once(guiding.pinned, params, corpus, has_judge)
        return msgspec.structs.replace(submission, params=msgspec.structs.replace(params, rulerag=rulerag))

    async def _pins(self, submission: Submission, corpus: int | None) -> dict[str, Pin]:
        """By role. A job that mines asks no model: the schedulers load none for it."""
        if submission.graph:
            return {"mine": await self._once(_miner, submission.graph)}
        params = submission.params
        if submission.imported is not None:
            return await self._grading_pins(submission)
        pins = await self._once(_models, submission.models, corpus, submission.corpus, self._settings.roles)
        pins = pins | await self._once(_fallback, params.crag.fallback)
        pins = pins | await self._once(_rules, params.rules)
        return {**pins, **await self._once(_grader, params.grading.grader, "judge" in pins)}

    async def _grading_pins(self, submission: Submission) -> dict[str, Pin]:
        """Of a job that only grades: its grader, and the judge where that asks one."""
        grader = submission.params.grading.grader
        roles = {role: name for role, name in self._settings.roles.items() if role == "judge" and grader == "rubric"}
        pins = await self._once(_models, submission.models, None, None, roles)
        kept = {role: pin for role, pin in pins.items() if role in ("judge", "verify")}
        return {**kept, **await self._once(_grader, grader, "judge" in kept)}

    async def _once(self, look_up: Callable[..., Awaitable[Any]], *named: Any) -> Any:
        key = canonical.encode([look_up.__name__, *(each for each in named if each is not self._settings)])
        if key not in self._known:
            self._known[key] = await look_up(self._connection, *named)
        return self._known[key]


def _pipeline(submission: Submission) -> registry.Registered:
    name = submission.pipeline
    try:
        found = registry.get(name)
    except registry.UnknownPipeline as error:
        hint = suggestions.hint(name, registry.offered(), "mathrag pipeline list")
        raise Invalid(f"`pipeline`: {error}", hint=hint) from error
    if name == IMPORTED and submission.imported is None:
        raise Invalid(f"`pipeline`: jobs of {name!r} are made of answers in a file", hint="mathrag job import")
    if name == MINE_RULES and not submission.graph:
        raise Invalid(f"`pipeline`: jobs of {name!r} are made for a rule bank", hint="mathrag rules mine")
    return found


async def _dataset(connection: AsyncConnection, name: str) -> tuple[int, int, str | None]:
    row = (await connection.execute(DATASET, {"name": name})).first()
    if row is None:
        raise await not_found(connection, "dataset", name)
    if row.items == 0:
        raise Invalid(f"`dataset`: {name!r} has no items")
    return row.id, row.items, row.grader


async def _corpus(connection: AsyncConnection, name: str | None) -> int | None:
    if name is None:
        return None
    corpus: int | None = (await connection.execute(CORPUS, {"name": name})).scalar()
    if corpus is None:
        raise await not_found(connection, "corpus", name)
    return corpus


async def _corpus_size(connection: AsyncConnection, corpus: int) -> int:
    return int((await connection.execute(CORPUS_SIZE, {"corpus": corpus})).scalar_one())


async def _models(
    connection: AsyncConnection,
    named: Mapping[str, str],
    corpus: int | None,
    corpus_name: str | None,
    roles: Mapping[Any, str],
) -> dict[str, Pin]:
    if unknown := sorted(named.keys() - roles.keys()):
        near = suggestions.nearest(unknown[0], roles)
        message = f"`models`: no role {unknown[0]!r}; the roles are {', '.join(sorted(roles))}"
        raise Invalid(message, hint=near and f"did you mean {near!r}?")
    pins = {**await models.pin_built_in(connection), "rerank": await models.pin_reranker(connection)}
    for role, name in {**roles, **named}.items():
        pins[role] = await models.pin(connection, role, name)
    if corpus is not None and corpus_name is not None:
        pins |= await models.pin_indexes(connection, corpus, corpus_name)
    return pins


async def _fallback(connection: AsyncConnection, corpus: str) -> dict[str, Pin]:
    """The words' index of the corpus that is searched where the first one fails."""
    found = await _corpus(connection, corpus or None)
    return {} if found is None else {"fallback": (await models.pin_indexes(connection, found, corpus))["sparse"]}


async def _miner(connection: AsyncConnection, graph: str) -> Pin:
    return await models.pin_own(connection, models.miner_identity(graph))


async def _rules(connection: AsyncConnection, bank: str) -> dict[str, Pin]:
    """The content of the rule bank that the job follows."""
    if not bank:
        return {}
    return {"rules": await models.pin_own(connection, models.bank_identity(await rule_banks.sealed(connection, bank)))}


def _with_grader(submission: Submission, declared: str | None) -> Submission:
    """With the dataset's grader, where it declares one and the job names none: the job keeps what it was graded by."""
    params = submission.params
    if params.grading.grader or not declared:
        return submission
    grading = msgspec.structs.replace(params.grading, grader=declared)
    return msgspec.structs.replace(submission, params=msgspec.structs.replace(params, grading=grading))


async def _grader(connection: AsyncConnection, name: str, has_judge: bool) -> dict[str, Pin]:  # noqa: FBT001 - looked up by position
    if name == "rubric" and not has_judge:
        hint = "name one with --model judge=NAME, configure `roles.judge`, or choose another grader"
        raise Invalid("`params.grading.grader`: `rubric` needs a judge model, and there is none", hint=hint)
    return {"grade": await models.pin_grader(connection, marking(name))}


def _probe(submission: Submission, pins: dict[str, Pin]) -> JobSpec:
    """Bind the calls of a dry run: a job that cannot run is refused, not failed a sample at a time."""
    params = submission.params
    job = JobSpec(
        id=0, pipeline=submission.pipeline, rank=0, dataset_id=0, params=params, prepared=None,
        binding=Binding(pins=pins, params=params, nonce=submission.name if submission.reuse == "none" else ""),
    )  # fmt: skip
    # Whether the judge is asked or not, what is wrong with its anchors can be said now.
    anchored = (Judge(rubric=RUBRIC, document=""),) if params.anchors else ()
    try:
        for call in anchored:
            bind(call, job.binding, 0)
        for _ in dry_run(job, Item(ordinal=0, question="?")):
            pass
    except KeyError as missing:
        raise Invalid(f"`corpus`: pipeline {submission.pipeline!r} needs one ({missing} is not pinned)") from missing
    except RepeatedDraw as error:
        raise Invalid(f"`pipeline`: {submission.pipeline!r}: {error}") from error
    except ValueError as error:
        raise Invalid(f"`params`: {error}") from error
    return job
