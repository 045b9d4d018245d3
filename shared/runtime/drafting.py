"""Draft jobs: look up and pin everything that a submission names."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from anyio import to_thread
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared import suggestions
from shared.contracts import canonical
from shared.contracts.calls import MOST_SLOTS, Judge
from shared.contracts.params import Params
from shared.contracts.plugins import Kind
from shared.contracts.samples import Item
from shared.errors import Invalid
from shared.pipelines import registry
from shared.pipelines.binding import Binding, Bound, Pin, RepeatedDraw, bind
from shared.pipelines.conversation import CONVERSATION
from shared.pipelines.embedding import EMBEDDING
from shared.pipelines.imported import IMPORTED
from shared.pipelines.mathrag_gate import RUBRIC
from shared.pipelines.mine_rules import MINE_RULES
from shared.plugins.loading import explain_unusable
from shared.rag.graders import choose_marking_grader
from shared.runtime import judge_calibration, models, rule_guidance, thresholds
from shared.runtime.acceptance import collect_acceptance
from shared.runtime.jobs import JobSpec
from shared.runtime.parameters import check_grader, check_grading
from shared.runtime.plugin_pins import check_prompt, pins_of, with_rubric
from shared.runtime.price import dry_run
from shared.runtime.submission import Submission
from shared.settings import Settings
from shared.storage import rule_banks
from shared.storage.unknown import make_not_found

DATASET = text("SELECT id, items, grader FROM datasets WHERE name = :name")
CORPUS = text("SELECT id FROM corpora WHERE name = :name")
CORPUS_SIZE = text("SELECT documents FROM corpora WHERE id = :corpus")


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """A job that can be inserted: everything that it names exists."""

    submission: Submission
    dataset: int
    corpus: int | None
    items: int
    """Number of the dataset's items that are asked."""
    spec: JobSpec
    """The job as it would run."""
    code: dict[str, Any]
    """Content of `jobs.code`: what accepted the job, and the submission's limit."""

    @property
    def samples(self) -> int:
        """Number of samples that the job would have."""
        if self.submission.imported is not None:
            return self.submission.imported.answers
        return self.items * self.submission.repeats


class Drafting:
    """Looks up what jobs name, each thing once even if many jobs name it; inserts nothing."""

    def __init__(self, connection: AsyncConnection, settings: Settings) -> None:
        self._connection = connection
        self._settings = settings
        self._known: dict[bytes, Any] = {}

    async def draft(self, submission: Submission, questions: int | None = None) -> Draft:
        """Draft the job; the operator's default models fill the roles that it does not name.

        Args:
            submission: the requested job.
            questions: number of questions to assume instead of a dataset's, for a plan.

        Raises:
            NotFound: no such dataset or corpus.
            Invalid: a field cannot be used; the message names it.
        """
        pipeline = _pipeline(submission)
        dataset, items, grader = (
            (0, questions, None) if questions else await self._look_up_once(_dataset, submission.dataset)
        )
        submission = _with_grading(submission, grader)
        if questions is None:
            check_grading(submission.given, submission.params)
        check_prompt(submission.params.generate.template)
        items = items if submission.limit is None else min(items, submission.limit)
        corpus = await self._look_up_once(_corpus, submission.corpus)
        pins = await self._pins(submission, corpus)
        if submission.corpus is not None and not pipeline.ignores("crag.similarity"):
            crag = await self._look_up_once(thresholds.pin_thresholds, submission.params.crag, submission.corpus)
            params = msgspec.structs.replace(submission.params, crag=crag)
            submission = msgspec.structs.replace(submission, params=params)
        submission = await self._with_judge(pipeline, submission, pins.get("judge"))
        submission = await self._with_guidance(pipeline, submission, corpus, has_judge="judge" in pins)
        # An experiment has up to a thousand drafts, and the schedulers share this event loop.
        spec, calls = await to_thread.run_sync(_dry_run, submission, pins)
        if pipeline.prepare is not None and corpus is not None:
            _check_calibration(submission.params, items, await self._look_up_once(_corpus_size, corpus))
        code = await self._look_up_once(collect_acceptance, self._settings, corpus, submission.configuration)
        asked: dict[str, Any] = {} if submission.limit is None else {"limit": submission.limit}
        if submission.submitted_by is not None:
            asked["submitted_by"] = submission.submitted_by
        if submission.imported is not None:
            asked["imported"] = msgspec.to_builtins(submission.imported)
        if used := pins_of(pipeline, submission.params, calls):
            asked["plugins"] = msgspec.to_builtins(used)
        return Draft(
            submission=submission, dataset=dataset, corpus=corpus, items=items, spec=spec, code={**code, **asked}
        )

    async def _with_judge(self, pipeline: registry.Registered, submission: Submission, pin: Pin | None) -> Submission:
        """Add the judge's calibration by labels; a repeated job keeps the calibration that it has."""
        if pipeline.ignores("gate.labels"):
            return submission
        if submission.params.gate.calibrated is not None and submission.requeued_from is None:
            raise Invalid("`params.gate.calibrated`: is filled in at submission", hint="leave it out")
        params = await self._look_up_once(judge_calibration.pin_judge_calibration, submission.params, pin)
        return msgspec.structs.replace(submission, params=params)

    async def _with_guidance(
        self, pipeline: registry.Registered, submission: Submission, corpus: int | None, *, has_judge: bool
    ) -> Submission:
        """Add what rule-guided pipelines need; a repeated job gets it anew."""
        if pipeline.reads is None or pipeline.ignores("rulerag.phrases"):
            return submission
        params = submission.params
        if params.rulerag.phrases and submission.requeued_from is None:
            raise Invalid("`params.rulerag.phrases`: is filled in at submission", hint="leave it out")
        rulerag = await self._look_up_once(rule_guidance.pin_rulerag, params, corpus, has_judge)
        return msgspec.structs.replace(submission, params=msgspec.structs.replace(params, rulerag=rulerag))

    async def _pins(self, submission: Submission, corpus: int | None) -> dict[str, Pin]:
        """Pin models by role. A mining job asks no model, so the schedulers load none for it."""
        if submission.graph:
            return {"mine": await self._look_up_once(_miner, submission.graph)}
        params = submission.params
        if submission.pipeline == EMBEDDING:
            return {"embed": await self._look_up_once(models.pin_embedder)}
        if submission.imported is not None:
            return await self._grading_pins(submission)
        pins = await self._look_up_once(_models, submission.models, corpus, submission.corpus, self._settings.roles)
        pins = pins | await self._look_up_once(_fallback, params.crag.fallback)
        pins = pins | await self._look_up_once(_rules, params.rules)
        return {**pins, **await self._look_up_once(_grader, params.grading.grader, "judge" in pins)}

    async def _grading_pins(self, submission: Submission) -> dict[str, Pin]:
        """Pin the grader of a job that only grades, and the judge if that grader asks one."""
        grader = submission.params.grading.grader
        roles = {role: name for role, name in self._settings.roles.items() if role == "judge" and grader == "rubric"}
        pins = await self._look_up_once(_models, submission.models, None, None, roles)
        kept = {role: pin for role, pin in pins.items() if role in ("judge", "verify")}
        return {**kept, **await self._look_up_once(_grader, grader, "judge" in kept)}

    async def _look_up_once(self, look_up: Callable[..., Awaitable[Any]], *named: Any) -> Any:
        key = canonical.encode([look_up.__name__, *(each for each in named if each is not self._settings)])
        if key not in self._known:
            self._known[key] = await look_up(self._connection, *named)
        return self._known[key]


def _pipeline(submission: Submission) -> registry.Registered:
    name = submission.pipeline
    try:
        found = registry.get(name)
    except registry.UnknownPipeline as error:
        if (unusable := explain_unusable(Kind.PIPELINE, name)) is not None:
            raise Invalid(f"`pipeline`: {unusable}", hint="mathrag plugin list") from error
        hint = suggestions.make_hint(name, registry.list_offered(), "mathrag pipeline list")
        raise Invalid(f"`pipeline`: {error}", hint=hint) from error
    if name == IMPORTED and submission.imported is None:
        raise Invalid(f"`pipeline`: jobs of {name!r} are made of answers in a file", hint="mathrag job import")
    if name == EMBEDDING and submission.job is None:
        raise Invalid(f"`pipeline`: jobs of {name!r} are made of texts", hint="POST /openai/v1/batches")
    if name == CONVERSATION and submission.job is None:
        raise Invalid(f"`pipeline`: jobs of {name!r} are made of messages", hint="POST /openai/v1/chat/completions")
    if name == MINE_RULES and not submission.graph:
        raise Invalid(f"`pipeline`: jobs of {name!r} are made for a rule bank", hint="mathrag rules mine")
    return found


async def _dataset(connection: AsyncConnection, name: str) -> tuple[int, int, str | None]:
    row = (await connection.execute(DATASET, {"name": name})).first()
    if row is None:
        raise await make_not_found(connection, "dataset", name)
    if row.items == 0:
        raise Invalid(f"`dataset`: {name!r} has no items")
    return row.id, row.items, row.grader


async def _corpus(connection: AsyncConnection, name: str | None) -> int | None:
    if name is None:
        return None
    corpus: int | None = (await connection.execute(CORPUS, {"name": name})).scalar()
    if corpus is None:
        raise await make_not_found(connection, "corpus", name)
    return corpus


async def _corpus_size(connection: AsyncConnection, corpus: int) -> int:
    return int((await connection.execute(CORPUS_SIZE, {"corpus": corpus})).scalar_one())


def _check_calibration(params: Params, items: int, documents: int) -> None:
    """Check that one step can hold the calibration's ratings for a dataset and a corpus of these sizes.

    Raises:
        Invalid: there may be too many ratings; the message has both numbers.
    """
    gate = params.gate
    rated = min(min(gate.items, items) * min(gate.top, params.candidates), gate.max_documents, documents)
    ratings = rated * (gate.repeats + (gate.truth == "verifier"))
    if params.quality == "gate" and ratings > MOST_SLOTS:
        raise Invalid(
            f"`params.gate`: the calibration asks for up to {ratings} ratings at once; a step holds {MOST_SLOTS} calls",
            hint="lower `gate.repeats` or `gate.max_documents`",
        )


async def _models(
    connection: AsyncConnection,
    named: Mapping[str, str],
    corpus: int | None,
    corpus_name: str | None,
    roles: Mapping[Any, str],
) -> dict[str, Pin]:
    if unknown := sorted(named.keys() - roles.keys()):
        near = suggestions.find_nearest(unknown[0], roles)
        message = f"`models`: no role {unknown[0]!r}; the roles are {', '.join(sorted(roles))}"
        raise Invalid(message, hint=near and f"did you mean {near!r}?")
    pins = {**await models.pin_built_in(connection), "rerank": await models.pin_reranker(connection)}
    for role, name in {**roles, **named}.items():
        pins[role] = await models.pin(connection, role, name)
    if corpus is not None and corpus_name is not None:
        pins |= await models.pin_indexes(connection, corpus, corpus_name)
    return pins


async def _fallback(connection: AsyncConnection, corpus: str) -> dict[str, Pin]:
    """Pin the sparse index of the corpus that `crag` falls back to."""
    found = await _corpus(connection, corpus or None)
    return {} if found is None else {"fallback": (await models.pin_indexes(connection, found, corpus))["sparse"]}


async def _miner(connection: AsyncConnection, graph: str) -> Pin:
    return await models.pin_identity(connection, models.miner_identity(graph))


async def _rules(connection: AsyncConnection, bank: str) -> dict[str, Pin]:
    """Pin the content of the rule bank that the job follows."""
    if not bank:
        return {}
    return {
        "rules": await models.pin_identity(
            connection, models.bank_identity(await rule_banks.get_sealed_hash(connection, bank))
        )
    }


def _with_grading(submission: Submission, declared: str | None) -> Submission:
    """Take the grader that the dataset declares, if the job names none, and the text of the rubric that it names."""
    grading = with_rubric(submission.params.grading)
    if not grading.grader and declared:
        grading = msgspec.structs.replace(grading, grader=declared)
    return msgspec.structs.replace(submission, params=msgspec.structs.replace(submission.params, grading=grading))


async def _grader(connection: AsyncConnection, name: str, has_judge: bool) -> dict[str, Pin]:  # noqa: FBT001 - looked up by position
    if name == "rubric" and not has_judge:
        hint = "name one with --model judge=NAME, configure `roles.judge`, or choose another grader"
        raise Invalid("`params.grading.grader`: `rubric` needs a judge model, and there is none", hint=hint)
    check_grader(name)
    return {"grade": await models.pin_grader(connection, choose_marking_grader(name))}


def _dry_run(submission: Submission, pins: dict[str, Pin]) -> tuple[JobSpec, list[Bound]]:
    """Bind the calls of a dry run, so that a job that cannot run is refused instead of failing sample by sample.

    Also returns these calls.
    """
    params = submission.params
    job = JobSpec(
        id=0, pipeline=submission.pipeline, dataset_id=0, params=params, prepared=None,
        binding=Binding(pins=pins, params=params, nonce=submission.name if submission.reuse == "none" else ""),
    )  # fmt: skip
    # Report wrong anchors now, even if the job may never ask the judge.
    anchored = (Judge(rubric=RUBRIC, document=""),) if params.anchors else ()
    try:
        for call in anchored:
            bind(call, job.binding, 0)
        rounds = list(dry_run(job, Item(ordinal=0, question="?")))
    except KeyError as missing:
        raise Invalid(f"`corpus`: pipeline {submission.pipeline!r} needs one ({missing} is not pinned)") from missing
    except RepeatedDraw as error:
        raise Invalid(f"`pipeline`: {submission.pipeline!r}: {error}") from error
    except ValueError as error:
        raise Invalid(f"`params`: {error}") from error
    return job, [bound for each in rounds for bound in each]
