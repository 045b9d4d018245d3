"""Submit jobs: check the request, pin models and indexes, and store the job with its samples."""

import asyncio
import logging
import secrets
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import msgspec
from anyio import to_thread
from sqlalchemy import RowMapping, text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, Invalid, NotFound, Unreadable
from mathrag.installation import checkout
from mathrag.messages import find_nearest, make_hint
from shared import canonical
from shared.calls import MATHEMATICAL, MAX_QUESTION, MOST_SLOTS, Judge
from shared.params import Params
from shared.pipelines import registry
from shared.pipelines.binding import Binding, Bound, Pin, RepeatedDraw, bind
from shared.pipelines.conversation import CONVERSATION
from shared.pipelines.embedding import EMBEDDING
from shared.pipelines.imported import IMPORTED
from shared.pipelines.mathrag_gate import RUBRIC
from shared.pipelines.measured import MEASURED
from shared.pipelines.mine_rules import MINE_RULES
from shared.pipelines.write_questions import WRITE_QUESTIONS
from shared.plugins.loading import explain_unusable
from shared.rag.answer_metrics import get_metric
from shared.rag.grading import choose_marking_grader
from shared.rag.prompts import list_template_ids, template
from shared.runtime import lifecycle
from shared.runtime.advance import JobSpec
from shared.runtime.lifecycle import make_next_name
from shared.runtime.parameters import check_grader, check_grading, check_metric_names
from shared.runtime.pins import (
    NO_RERANKER,
    bank_identity,
    check_shows_documents,
    choose_prompt,
    grader_identity,
    miner_identity,
    pin_built_in,
    pin_embedder,
    pin_identity,
    pin_indexes,
    pin_judge_calibration,
    pin_model,
    pin_prompt,
    pin_reranker,
    pin_rulerag,
    pin_thresholds,
    pins_of,
    with_rubric,
)
from shared.runtime.price import dry_run, make_placeholder_item
from shared.runtime.shares import admit, take_turns
from shared.samples import Conversation
from shared.settings import Settings
from shared.shapes import Kind
from shared.storage import rules
from shared.storage.database import (
    Accepted,
    Database,
    KeyedRequest,
    Origins,
    find_project,
    limit_to,
    limit_transaction,
    make_not_found,
    run_once,
    show_all,
    sql,
    try_decode_params,
)
from shared.storage.jobs import JOB_COLUMNS, JOB_FIELDS, SELECTED_FIELDS, JobFields
from shared.storage.prompts import AnswerPrompt
from shared.telemetry import traces


class ImportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that were stored for a job of `imported`."""

    answers: int
    missing: int
    """Items of the dataset without an answer."""
    contexts: int
    """Answers with the texts that their prompt had."""
    matched: dict[str, int]
    """Number of answers by what named their item: "id", "question", "index" or "order"."""
    hash: str
    """SHA-256 in hex over all of them, in the file's order."""


class MeasuredJob(msgspec.Struct, frozen=True, kw_only=True):
    """The ended job whose answers a job of `measured` measures."""

    job: str
    """Its id; the job itself may have been purged."""
    name: str
    """Its name at that time."""
    pipeline: str
    """The pipeline that made the answers, even if they were measured before."""
    chain: str
    """Hash, in hex, of its last record."""
    answers: int
    contexts: int
    """Answers for which something was searched."""
    left_out: int
    """Samples that failed and have no answer."""


class Submission(JobFields, frozen=True, kw_only=True):
    """The request for a job."""

    params: Params = Params()
    given: frozenset[str] = frozenset()
    """Paths of the parameters that the submitter has set, such as `grading.threshold`."""
    configuration: int | None = None
    """Version of the configuration that filled in missing parameters; None if it was not needed."""
    models: Mapping[str, str] = {}
    """Model names by role; the operator's defaults apply to the other roles."""
    submitted_by: str | None = None
    """Name of the key that submits it; None where no keys are asked for."""
    online: bool = False
    """Whether a client waits for this single question; such jobs are not listed."""
    requeued_from: uuid.UUID | None = None
    """The ended job that this one repeats."""
    experiment: int | None = None
    """Row id of the job's experiment."""
    graph: str = ""
    """Hash of the graph to mine, for a job of `mine-rules`; otherwise empty."""
    job: uuid.UUID | None = None
    """The job's future id, if something was already stored for its samples; None draws one."""
    imported: ImportSummary | None = None
    """What a job of `imported` grades; None for other pipelines."""
    measured: MeasuredJob | None = None
    """What a job of `measured` measures; None for other pipelines."""

    @property
    def stored(self) -> ImportSummary | MeasuredJob | None:
        """Return the report on the answers that were stored for it; None if its pipeline makes them."""
        return self.imported or self.measured


SCHEMA = text("SELECT version_num FROM alembic_version")
INDEXES = text("""
    SELECT i.kind, encode(i.signature, 'hex') AS signature, encode(i.file_hash, 'hex') AS file_hash, i.documents,
        i.params
    FROM corpora c JOIN indexes i ON i.id IN (c.dense_index, c.sparse_index) WHERE c.id = :corpus""")
IDS = text("SELECT encode(ids, 'hex') FROM corpora WHERE id = :corpus")
DECIDING = {"models", "roles", "retrieval", "device", "workers", "patience_s"}
"""Settings that affect results. They are listed one by one so that a secret added later is not included."""
DECIDING_NOTHING = {"models": {"__all__": {"price"}}}
"""Fields of these settings that change no reply."""


async def collect_acceptance(
    connection: AsyncConnection, settings: Settings, corpus: int | None, defaults: int | None = None
) -> dict[str, Any]:
    """Collect what `jobs.code` keeps. It never changes after the job was accepted.

    `defaults` is the version of the configuration that its parameters were filled in from.
    """
    commit, dirty = await asyncio.to_thread(checkout)
    indexes = (await connection.execute(INDEXES, {"corpus": corpus})).mappings()
    return {
        "commit": settings.commit or commit,
        "dirty": None if settings.commit else dirty,
        "version": version("mathrag-gate"),
        "image": settings.image_digest or None,
        "schema": (await connection.execute(SCHEMA)).scalar(),
        "configuration": configuration_hash(settings),
        "defaults": defaults,
        "corpus_ids": (await connection.execute(IDS, {"corpus": corpus})).scalar(),
        "indexes": {row["kind"]: {name: row[name] for name in row if name != "kind"} for row in indexes},
    }


def configuration_hash(settings: Settings) -> str:
    """Return the SHA-256 of the settings that affect results; addresses and passwords are left out."""
    return canonical.digest(settings.model_dump(mode="json", include=DECIDING, exclude=DECIDING_NOTHING)).hex()


DATASET = text("SELECT id, items, grader FROM datasets WHERE name = :name")
HAS_GOLD = text("SELECT EXISTS (SELECT FROM items WHERE dataset_id = :dataset AND gold IS NOT NULL)")
HAS_GOLD_OR_NUGGETS = text("""
    SELECT EXISTS (SELECT FROM items WHERE dataset_id = :dataset AND (gold IS NOT NULL OR expected ? 'nuggets'))""")
CORPUS = text("SELECT id FROM corpora WHERE name = :name")
FIRST_PROBLEM = text("""
    SELECT d.problem FROM corpus_documents c JOIN documents d ON d.hash = c.hash
    WHERE c.corpus_id = :corpus ORDER BY c.ordinal LIMIT 1""")
RELEVANCE_FLOOR = 0.5
"""Default of `rerank.floor` (docs/explanation/pipelines.md#relevance-to-the-question)."""
CORPUS_SIZE = text("SELECT documents FROM corpora WHERE id = :corpus")


MADE_OF = {
    IMPORTED: ("answers in a file", "mathrag job import"),
    MEASURED: ("an ended job", "mathrag job measure"),
    EMBEDDING: ("texts", "POST /openai/v1/batches"),
    CONVERSATION: ("messages", "POST /openai/v1/chat/completions"),
    MINE_RULES: ("a graph", "mathrag rules mine"),
    WRITE_QUESTIONS: ("passages of a corpus", "mathrag dataset generate"),
}
"""Pipelines whose jobs other requests create: the material of the jobs, and the command that creates them."""


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
        if self.submission.stored is not None:
            return self.submission.stored.answers
        return self.items * self.submission.repeats


class Drafting:
    """Looks up what jobs name, each thing once even if many jobs name it; inserts nothing."""

    def __init__(self, connection: AsyncConnection, settings: Settings) -> None:
        self._connection = connection
        self._settings = settings
        self._known: dict[tuple[Callable[..., Awaitable[Any]], bytes], Any] = {}

    async def draft(self, submission: Submission, questions: int | None = None) -> Draft:
        """Draft the job; the operator's default models fill the roles that it does not name.

        Args:
            submission: the requested job.
            questions: number of questions to assume instead of a dataset's, for a plan.

        Raises:
            NotFound: no such dataset or corpus.
            Invalid: a field cannot be used; the message names it.
        """
        pipeline = _find_pipeline(submission)
        dataset, items, grader = (
            (0, questions, None) if questions else await self._look_up_once(_find_dataset, submission.dataset)
        )
        submission = _complete_grading(submission, grader)
        if questions is None:
            check_grading(submission.given, submission.params)
        submission, prompt = await self._with_prompt(pipeline, submission)
        items = items if submission.limit is None else min(items, submission.limit)
        corpus = await self._look_up_once(_find_corpus, submission.corpus)
        pins = await self._pin_roles(submission, corpus)
        submission = await self._with_relevance(pipeline, submission, corpus, pins)
        if submission.corpus is not None and not pipeline.ignores("crag.similarity"):
            crag = await self._look_up_once(pin_thresholds, submission.params.crag, submission.corpus)
            params = msgspec.structs.replace(submission.params, crag=crag)
            submission = msgspec.structs.replace(submission, params=params)
        submission = await self._with_judge(pipeline, submission, pins.get("judge"))
        submission = await self._with_guidance(pipeline, submission, corpus, has_judge="judge" in pins)
        # An experiment has up to a thousand drafts, and the schedulers share this event loop.
        check_metric_names(submission.params.metrics)
        spec, calls = await to_thread.run_sync(_dry_run, submission, pins)
        check_shows_documents(prompt, calls)
        await self._check_metrics(submission, dataset, calls)
        if pipeline.prepare is not None and corpus is not None:
            _check_calibration(submission.params, items, await self._look_up_once(_count_documents, corpus))
        code = await self._look_up_once(collect_acceptance, self._settings, corpus, submission.configuration)
        asked: dict[str, Any] = {} if submission.limit is None else {"limit": submission.limit}
        if submission.submitted_by is not None:
            asked["submitted_by"] = submission.submitted_by
        if submission.imported is not None:
            asked["imported"] = msgspec.to_builtins(submission.imported)
        if submission.measured is not None:
            asked["measured"] = msgspec.to_builtins(submission.measured)
        if used := pins_of(pipeline, submission.params, calls):
            asked["plugins"] = msgspec.to_builtins(used)
        return Draft(
            submission=submission, dataset=dataset, corpus=corpus, items=items, spec=spec, code={**code, **asked}
        )

    async def _with_prompt(
        self, pipeline: registry.Registered, submission: Submission
    ) -> tuple[Submission, AnswerPrompt | None]:
        """Pin the prompt that the job names, else choose the shipped one that its grader reads; a repeated job keeps
        the one that it had.
        """
        if pipeline.ignores("generate.template"):
            return submission, None
        generate, prompt = submission.params.generate, None
        if generate.template:
            prompt = await self._look_up_once(pin_prompt, generate.template)
            pinned = prompt.pinned if prompt.origin == "stored" else prompt.name
        else:
            repeated = submission.requeued_from is not None
            pinned = "" if repeated else choose_prompt(submission.params.grading.grader)
        params = msgspec.structs.replace(submission.params, generate=msgspec.structs.replace(generate, template=pinned))
        return msgspec.structs.replace(submission, params=params), prompt

    async def _with_relevance(
        self, pipeline: registry.Registered, submission: Submission, corpus: int | None, pins: Mapping[str, Pin]
    ) -> Submission:
        """Fill in how `mathrag-gate` keeps what is relevant in the prompt, where the job does not say it; a repeated
        job keeps what it had.
        """
        if pipeline.reads is None or pipeline.ignores("rated") or submission.requeued_from is not None:
            return submission
        params, rerank = submission.params, submission.params.rerank
        has_reranker = pins["rerank"].hash != NO_RERANKER.hash.hex()
        grader = params.grading.grader
        mathematical = grader in MATHEMATICAL if grader else await self._look_up_once(_has_worked_solutions, corpus)
        # Worked solutions differ in quality, so there quality also chooses between the last document and the next one.
        rated = min(params.context_size + mathematical, params.candidates) if params.rated is None else params.rated
        # Rules cost no calls, and a single document cannot be reordered.
        may_choose = params.quality == "gate" and "quality" not in submission.given
        quality = "rules" if rated == 1 and may_choose else params.quality
        params = msgspec.structs.replace(params, rated=rated, quality=quality)
        asks_judge = rerank.by in ("yes-no", "rating") or (rerank.by == "auto" and not has_reranker)
        # A job whose quality needs no judge is not made to load one.
        needs_no_judge = mathematical and asks_judge and submission.params.quality in ("rules", "verifier")
        if rerank.floor is None and not needs_no_judge and ("judge" in pins if asks_judge else has_reranker):
            tested = rerank.tested if "rerank.tested" in submission.given else asks_judge and not mathematical
            rerank = msgspec.structs.replace(rerank, floor=RELEVANCE_FLOOR, tested=tested)
        if rerank.floor and rerank.by == "auto":
            by = "reranker" if has_reranker or "judge" not in pins else "rating"
            rerank = msgspec.structs.replace(rerank, by=by)
        return msgspec.structs.replace(submission, params=msgspec.structs.replace(params, rerank=rerank))

    async def _with_judge(self, pipeline: registry.Registered, submission: Submission, pin: Pin | None) -> Submission:
        """Add the judge's calibration by labels; a repeated job keeps the calibration that it has."""
        if pipeline.ignores("gate.labels"):
            return submission
        if submission.params.gate.calibrated is not None and submission.requeued_from is None:
            raise Invalid(
                "`params.gate.calibrated`: cannot be set; the service fills it in at submission", hint="leave it out"
            )
        params = await self._look_up_once(pin_judge_calibration, submission.params, pin)
        return msgspec.structs.replace(submission, params=params)

    async def _with_guidance(
        self, pipeline: registry.Registered, submission: Submission, corpus: int | None, *, has_judge: bool
    ) -> Submission:
        """Add what rule-guided pipelines need; a repeated job gets it again."""
        if pipeline.reads is None or pipeline.ignores("rulerag.phrases"):
            return submission
        params = submission.params
        if params.rulerag.phrases and submission.requeued_from is None:
            raise Invalid(
                "`params.rulerag.phrases`: cannot be set; the service fills it in at submission", hint="leave it out"
            )
        rulerag = await self._look_up_once(pin_rulerag, params, corpus, has_judge)
        return msgspec.structs.replace(submission, params=msgspec.structs.replace(params, rulerag=rulerag))

    async def _check_metrics(self, submission: Submission, dataset: int, calls: Sequence[Bound]) -> None:
        """Check that the job has what its metrics read.

        Raises:
            Invalid: a metric needs a search, gold answers or numbered documents that the job lacks.
        """
        stored = submission.stored
        searches = stored.contexts > 0 if stored else any(bound.role == "retrieve" for bound in calls)
        prompt = submission.params.generate.template.partition("@")[0]
        is_import = submission.imported or (submission.measured and submission.measured.pipeline == IMPORTED)
        # Another system numbers its own documents, or cites nothing.
        numbered = bool(is_import) or (prompt in list_template_ids() and template(prompt).numbered)
        for each in map(get_metric, submission.params.metrics.names):
            at = f"`params.metrics.names`: {each.name!r}"
            if (each.needs_documents or each.needs_citations) and not searches:
                problem, hint = "the pipeline searches nothing", "leave it out"
                if is_import:
                    hint = "add them in a column `contexts`, or leave it out"
                    problem = "no answer of the import has any"
                raise Invalid(f"{at} reads the documents of the prompt, and {problem}", hint=hint)
            if each.needs_citations and not numbered:
                hint = "set `generate.template` to `cited`"
                raise Invalid(f"{at} reads citations, and the prompt does not number the documents", hint=hint)
            look_up = _has_gold_or_nuggets if each.takes_nuggets else _has_gold
            if each.needs_gold and dataset and not await self._look_up_once(look_up, dataset):
                hint = "leave it out, or choose a metric that needs none, such as `faithfulness`"
                needed = "gold answers or nuggets" if each.takes_nuggets else "gold answers"
                raise Invalid(f"{at} needs {needed}, and the dataset has none", hint=hint)

    async def _pin_roles(self, submission: Submission, corpus: int | None) -> dict[str, Pin]:
        """Pin models by role. A mining job asks no model, so the schedulers load none for it."""
        if submission.graph:
            return {"mine": await self._look_up_once(_pin_miner, submission.graph)}
        params = submission.params
        if submission.pipeline == EMBEDDING:
            return {"embed": await self._look_up_once(pin_embedder)}
        if submission.stored is not None:
            return await self._pin_grading(submission)
        pins = await self._look_up_once(_pin_models, submission.models, corpus, submission.corpus, self._settings.roles)
        pins = pins | await self._look_up_once(_pin_fallback, params.crag.fallback)
        pins = pins | await self._look_up_once(_pin_rules, params.rules)
        return {**pins, **await self._look_up_once(_pin_answer_grader, params.grading.grader, "judge" in pins)}

    async def _pin_grading(self, submission: Submission) -> dict[str, Pin]:
        """Pin the grader of a job that only grades, and the judge if that grader asks one."""
        grader = submission.params.grading.grader
        asks_judge = grader == "rubric" or submission.params.metrics.names
        roles = {role: name for role, name in self._settings.roles.items() if role == "judge" and asks_judge}
        pins = await self._look_up_once(_pin_models, submission.models, None, None, roles)
        kept = {role: pin for role, pin in pins.items() if role in ("judge", "verify")}
        return {**kept, **await self._look_up_once(_pin_answer_grader, grader, "judge" in kept)}

    async def _look_up_once(self, look_up: Callable[..., Awaitable[Any]], *named: Any) -> Any:
        key = look_up, canonical.encode([each for each in named if each is not self._settings])
        if key not in self._known:
            self._known[key] = await look_up(self._connection, *named)
        return self._known[key]


def _find_pipeline(submission: Submission) -> registry.Registered:
    name = submission.pipeline
    try:
        found = registry.get(name)
    except registry.UnknownPipeline as error:
        if (unusable := explain_unusable(Kind.PIPELINE, name)) is not None:
            raise Invalid(f"`pipeline`: {unusable}", hint="mathrag plugin list") from error
        hint = make_hint(name, registry.list_offered(), "mathrag pipeline list")
        raise Invalid(f"`pipeline`: {error}", hint=hint) from error
    if name in MADE_OF and submission.job is None and not submission.graph:
        material, command = MADE_OF[name]
        problem = f"`pipeline`: {name!r} cannot be submitted: its jobs are created from {material}"
        raise Invalid(problem, hint=f"create one with {command}")
    return found


async def _find_dataset(connection: AsyncConnection, name: str) -> tuple[int, int, str | None]:
    row = (await connection.execute(DATASET, {"name": name})).first()
    if row is None:
        raise await make_not_found(connection, "dataset", name)
    if row.items == 0:
        raise Invalid(f"`dataset`: {name!r} has no items", hint="mathrag dataset create NAME --from PATH")
    return row.id, row.items, row.grader


async def _has_gold(connection: AsyncConnection, dataset: int) -> bool:
    return bool((await connection.execute(HAS_GOLD, {"dataset": dataset})).scalar())


async def _has_gold_or_nuggets(connection: AsyncConnection, dataset: int) -> bool:
    return bool((await connection.execute(HAS_GOLD_OR_NUGGETS, {"dataset": dataset})).scalar())


async def _find_corpus(connection: AsyncConnection, name: str | None) -> int | None:
    if name is None:
        return None
    corpus: int | None = (await connection.execute(CORPUS, {"name": name})).scalar()
    if corpus is None:
        raise await make_not_found(connection, "corpus", name)
    return corpus


async def _has_worked_solutions(connection: AsyncConnection, corpus: int | None) -> bool:
    """Tell whether the corpus's first document answers a problem, as plain passages do not; true if it has none."""
    return (await connection.execute(FIRST_PROBLEM, {"corpus": corpus})).scalar() != ""


async def _count_documents(connection: AsyncConnection, corpus: int) -> int:
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


async def _pin_models(
    connection: AsyncConnection,
    named: Mapping[str, str],
    corpus: int | None,
    corpus_name: str | None,
    roles: Mapping[Any, str],
) -> dict[str, Pin]:
    if unknown := sorted(named.keys() - roles.keys()):
        near = find_nearest(unknown[0], roles)
        message = f"`models`: no role {unknown[0]!r}; the roles are {', '.join(sorted(roles))}"
        raise Invalid(message, hint=near and f"did you mean {near!r}?")
    pins = {**await pin_built_in(connection), "rerank": await pin_reranker(connection)}
    for role, name in {**roles, **named}.items():
        pins[role] = await pin_model(connection, role, name)
    if corpus is not None and corpus_name is not None:
        pins |= await pin_indexes(connection, corpus, corpus_name)
    return pins


async def _pin_fallback(connection: AsyncConnection, corpus: str) -> dict[str, Pin]:
    """Pin the sparse index of the corpus that `crag` falls back to."""
    found = await _find_corpus(connection, corpus or None)
    return {} if found is None else {"fallback": (await pin_indexes(connection, found, corpus))["sparse"]}


async def _pin_miner(connection: AsyncConnection, graph: str) -> Pin:
    return await pin_identity(connection, miner_identity(graph))


async def _pin_rules(connection: AsyncConnection, bank: str) -> dict[str, Pin]:
    """Pin the content of the rule bank that the job follows."""
    if not bank:
        return {}
    return {"rules": await pin_identity(connection, bank_identity(await rules.get_sealed_hash(connection, bank)))}


def _complete_grading(submission: Submission, declared: str | None) -> Submission:
    """Take the grader that the dataset declares, if the job names none, and the text of the rubric that it names."""
    grading = with_rubric(submission.params.grading)
    if not grading.grader and declared:
        grading = msgspec.structs.replace(grading, grader=declared)
    return msgspec.structs.replace(submission, params=msgspec.structs.replace(submission.params, grading=grading))


async def _pin_answer_grader(connection: AsyncConnection, name: str, has_judge: bool) -> dict[str, Pin]:  # noqa: FBT001 - looked up by position
    if name == "rubric" and not has_judge:
        hint = "name one with --model judge=NAME, configure `roles.judge`, or choose another grader"
        raise Invalid("`params.grading.grader`: `rubric` needs a judge model, but the job has none", hint=hint)
    check_grader(name)
    return {"grade": await pin_identity(connection, grader_identity(choose_marking_grader(name)))}


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
        rounds = list(dry_run(job, make_placeholder_item(params)))
    except KeyError as missing:
        if missing.args == ("judge",) and params.metrics.names:
            hint = "name one with --model judge=NAME, or configure `roles.judge`"
            raise Invalid(
                "`params.metrics.names`: metrics need a judge model, but the job has none", hint=hint
            ) from missing
        hint = "add --corpus NAME (`mathrag corpus list` shows all), or choose the pipeline `closed-book`"
        message = f"`corpus`: pipeline {submission.pipeline!r} needs one ({missing} is not pinned)"
        raise Invalid(message, hint=hint) from missing
    except RepeatedDraw as error:
        hint = "correct the pipeline: each draw of a prompt needs its own number"
        raise Invalid(f"`pipeline`: {submission.pipeline!r}: {error}", hint=hint) from error
    except ValueError as error:
        raise Invalid(f"`params`: {error}", hint="correct them as docs/reference/parameters.md says") from error
    return job, [bound for each in rounds for bound in each]


INSERTED = {
    **JOB_COLUMNS, "public_id": "uuid", "pipeline_hash": "bytea", "params": "bytea", "dataset_id": "integer",
    "corpus_id": "integer", "pins": "jsonb", "total": "integer", "online": "boolean", "code": "jsonb",
    "requeued_from": "uuid", "experiment_id": "integer",
}  # fmt: skip
"""Columns of a new job, with their types."""
_SELECTED = {name: f"u.{name}" for name in INSERTED} | {
    "requeued_from": "(SELECT id FROM jobs r WHERE r.public_id = u.requeued_from)"
}
INSERT_JOBS = text(f"""
    INSERT INTO jobs ({", ".join(INSERTED)}, state)
    SELECT {", ".join(_SELECTED.values())}, 'preparing'
    FROM unnest({", ".join(f"CAST(:{name} AS {kind}[])" for name, kind in INSERTED.items())}) WITH ORDINALITY
        u({", ".join(INSERTED)}, place)
    ORDER BY u.place RETURNING id, pipeline""")  # noqa: S608 - names of this program alone
INSERT_PREPARE = sql("""
    INSERT INTO samples (job_id, kind, ordinal, repeat, state)
    SELECT id, 'prepare', 0, 0, {READY} FROM unnest(CAST(:jobs AS bigint[])) j(id) ORDER BY id""")
_log = logging.getLogger(__name__)


async def submit(database: Database, settings: Settings, submission: Submission) -> uuid.UUID:
    """Insert the job without an idempotency key. See `submit_once` for errors."""
    return (await submit_once(database, settings, submission, None)).job


async def submit_once(
    database: Database, settings: Settings, submission: Submission, keyed: KeyedRequest | None
) -> Accepted:
    """Insert the job, or find the one that the same request created before.

    Raises:
        NotFound: no such dataset or corpus.
        Invalid: a field cannot be used; the message names it.
        Conflict: a job has this name already.
        TooLarge, TooMany: more than the operator allows.
        IdempotencyMismatch, InProgress: see `run_once` and `lifecycle.reserve`.
    """

    async def make() -> uuid.UUID:
        return (await draft_and_insert(connection, settings, [submission]))[0]

    async with database.transaction() as connection:
        accepted = await run_once(connection, keyed, make)
    if not accepted.replayed:
        traces.link(traces.make_job_ref(accepted.job))
        _log.info("job accepted", extra={"job_id": str(accepted.job), "pipeline": submission.pipeline})
    return accepted


async def draft_and_insert(
    connection: AsyncConnection, settings: Settings, submissions: Sequence[Submission]
) -> list[uuid.UUID]:
    """Insert the jobs and their first samples; return the jobs' ids in order. See `submit_once` for errors."""
    async with in_project_of(connection, submissions):
        drafting = Drafting(connection, settings)
        return await insert(connection, settings, [await drafting.draft(each) for each in submissions])


@asynccontextmanager
async def in_project_of(connection: AsyncConnection, submissions: Sequence[Submission]) -> AsyncIterator[None]:
    """Limit the block, and this transaction, to the project of the jobs' data. See `find_project` for errors."""
    origins = Origins(
        datasets={each.dataset for each in submissions},
        corpora={each.corpus for each in submissions if each.corpus is not None},
        jobs={each.requeued_from for each in submissions if each.requeued_from is not None}
        | {uuid.UUID(each.measured.job) for each in submissions if each.measured is not None},
    )
    with limit_to(await find_project(connection, origins)):
        await limit_transaction(connection)
        yield
    await limit_transaction(connection)


async def insert(connection: AsyncConnection, settings: Settings, drafts: Sequence[Draft]) -> list[uuid.UUID]:
    """Insert the jobs and their first samples; return the jobs' ids in order.

    Raises:
        Conflict: a job has one of the names already.
        TooLarge, TooMany: more than the operator allows.
        InProgress: another request is taking one of the names.
    """
    asked = [(draft.submission.submitted_by, draft.samples) for draft in drafts]
    async with show_all(connection):
        await admit(connection, settings.limits, asked)
        turns = await take_turns(connection, asked)
    names = await _reserve_names(connection, [draft.submission for draft in drafts])
    # In a thread because hashing a pipeline takes milliseconds.
    rows = await to_thread.run_sync(_make_rows, drafts, names, turns)
    inserted = (await connection.execute(INSERT_JOBS, {name: [row[name] for row in rows] for name in rows[0]})).all()
    calibrated = {row.id for row in inserted if registry.get(row.pipeline).prepare is not None}
    await connection.execute(INSERT_PREPARE, {"jobs": sorted(calibrated)})
    await lifecycle.start_jobs(connection, sorted({row.id for row in inserted} - calibrated), None)
    return [row["public_id"] for row in rows]


async def _reserve_names(connection: AsyncConnection, submissions: Sequence[Submission]) -> list[str]:
    """Reserve the jobs' names. A requeued job gets the next free number; chats need no unique name."""
    fixed = [each.name for each in submissions if not each.online and each.requeued_from is None]
    await lifecycle.reserve(connection, fixed)
    names: list[str] = []
    for each in submissions:
        is_numbered = not each.online and each.requeued_from is not None
        names.append(await lifecycle.reserve_next(connection, each.name, names) if is_numbered else each.name)
    return names


def _make_rows(
    drafts: Sequence[Draft], names: Sequence[str], turns: Sequence[Mapping[str, int]]
) -> list[dict[str, Any]]:
    rows = []
    for draft, name, turn in zip(drafts, names, turns, strict=True):
        submission = draft.submission
        columns = {column: getattr(submission, column) for column in JOB_COLUMNS}
        rows.append(
            columns
            | {
                "name": name,
                "public_id": submission.job or uuid.uuid4(),
                "pipeline_hash": bytes.fromhex(registry.pipeline_hash(submission.pipeline, submission.params)),
                "params": canonical.encode(submission.params),
                "dataset_id": draft.dataset,
                "corpus_id": draft.corpus,
                "pins": canonical.encode(draft.spec.binding.pins).decode(),
                "total": draft.samples,
                "metadata": canonical.encode(submission.metadata).decode(),
                "code": canonical.encode({**draft.code, **turn}).decode(),
                "online": submission.online,
                "requeued_from": submission.requeued_from,
                "experiment_id": submission.experiment,
            }
        )
    return rows


# Requeue an ended job: submit the same request as a new job.
#
# Ended states are final, so the old job stays unchanged. Replies are shared: only calls that failed for a temporary
# reason are computed again. A job with `reuse: none` shares nothing, so everything is computed again.

SOURCE = text(f"""
    SELECT j.public_id, {SELECTED_FIELDS}, j.params, j.online, j.state, j.ended_at,
        (SELECT COALESCE(jsonb_object_agg(p.key, m.name), '{{}}') FROM jsonb_each(j.pins) p
         JOIN models m ON m.id = CAST(p.value ->> 'model_id' AS integer)
         WHERE p.key IN ('judge', 'generate')) AS models
    FROM jobs j JOIN datasets d ON d.id = j.dataset_id LEFT JOIN corpora k ON k.id = j.corpus_id
    WHERE j.public_id = ANY(:jobs) ORDER BY j.id""")  # noqa: S608 - names of this program alone


NOT_REQUEUED = (MINE_RULES, IMPORTED, MEASURED, WRITE_QUESTIONS)


async def repeat_submission(database: Database, public_id: uuid.UUID) -> Submission:
    """Return a submission that repeats an ended job, with the newest models of the same names.

    Raises:
        NotFound: no such job.
        Conflict: it has not ended.
        Unreadable: this release cannot read its parameters.
    """
    row = await _find_source(database, public_id)
    if row["ended_at"] is None:
        raise Conflict(f"job {public_id} is {row['state']}, so it cannot be requeued", hint="wait for it, or cancel it")
    if row["pipeline"] in NOT_REQUEUED:
        material, command = MADE_OF[row["pipeline"]]
        problem = f"job {public_id} was created from {material}, so it cannot be requeued"
        raise Conflict(problem, hint=f"create it again with {command}")
    return _make_submission(row)


async def copy_submission(database: Database, public_id: uuid.UUID) -> Submission:
    """Return a copy of a job's submission, in any state, as a starting point for a changed one.

    Raises:
        NotFound: no such job.
        Unreadable: this release cannot read its parameters.
    """
    return _make_submission(await _find_source(database, public_id))


async def _find_source(database: Database, public_id: uuid.UUID) -> RowMapping:
    async with database.transaction() as connection:
        row = (await connection.execute(SOURCE, {"jobs": [public_id]})).mappings().first()
    if row is None:
        raise NotFound(f"no job {public_id}", hint="mathrag job list")
    return row


async def repeat_submissions(connection: AsyncConnection, public_ids: Sequence[uuid.UUID]) -> list[Submission]:
    """Return submissions that repeat several ended jobs, in the order in which the jobs were submitted."""
    return [_make_submission(row) for row in (await connection.execute(SOURCE, {"jobs": list(public_ids)})).mappings()]


def _make_submission(row: RowMapping) -> Submission:
    params, problem = try_decode_params(row["params"], f"the parameters of job {row['public_id']}")
    if params is None:
        raise Unreadable(str(problem), hint="submit a new job with parameters of this release")
    fields = {field: row[field] for field in (*JOB_FIELDS, "online", "models")}
    return Submission(
        params=params,
        requeued_from=uuid.UUID(str(row["public_id"])),
        **(fields | {"name": make_next_name(row["name"])}),
    )


# Store the messages of conversations together with the job that answers them.

STORE = text("""
    INSERT INTO given (job, ordinal, repeat, content)
    SELECT CAST(:job AS uuid), c.place - 1, 0, c.content
    FROM unnest(CAST(:contents AS bytea[])) WITH ORDINALITY c(content, place)""")
LARGEST_DRAW = 2**62


def choose_draw(temperature: float, seed: int | None) -> int:
    """Return the draw of an answer: 0 for greedy decoding, otherwise the seed, or a random number without one."""
    if not temperature:
        return 0
    return secrets.randbelow(LARGEST_DRAW) + 1 if seed is None else seed


def question_for(conversation: Conversation) -> str:
    """Return the text that represents the conversation in a dataset: its last message, cut to the length of a
    question."""
    return conversation.messages[-1].content[:MAX_QUESTION]


async def submit_conversations(
    connection: AsyncConnection, settings: Settings, submission: Submission, conversations: Sequence[Conversation]
) -> uuid.UUID:
    """Insert a job of the pipeline `conversation`; its dataset has one item per conversation, in order.

    Raises:
        NotFound, Invalid, Conflict, TooLarge, TooMany: as `submit_once`.
    """
    job = uuid.uuid4()
    await connection.execute(STORE, {"job": job, "contents": [canonical.encode(each) for each in conversations]})
    return (await draft_and_insert(connection, settings, [msgspec.structs.replace(submission, job=job)]))[0]


# Single questions for which a client waits: jobs of one sample; equal questions share a dataset.

RANK = 0
"""These calls are claimed before those of batches, as soon as their model is resident."""
FIRST_LOOK_S = 0.05
LONGEST_PAUSE_S = 0.5
ENDED = text("SELECT ended_at IS NOT NULL FROM jobs WHERE public_id = :job")


async def wait_for_job(database: Database, job: uuid.UUID, most_s: float) -> None:
    """Wait until the job has ended or `most_s` seconds have passed; no connection is held between the checks."""
    deadline, pause = time.monotonic() + most_s, FIRST_LOOK_S
    while (left := deadline - time.monotonic()) > 0 and not await has_ended(database, job):
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, LONGEST_PAUSE_S)


async def has_ended(database: Database, job: uuid.UUID) -> bool:
    """Tell whether the job has ended, in any state."""
    async with database.statement() as connection:
        return bool((await connection.execute(ENDED, {"job": job})).scalar())
