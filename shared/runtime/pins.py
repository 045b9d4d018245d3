"""Pin a job: its models, plug-ins, and the calibrations of thresholds, judges and rules."""

import uuid
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from importlib.metadata import version
from statistics import fmean
from typing import Any
from unicodedata import unidata_version

import msgspec
from anyio import to_thread
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from mathrag.errors import Conflict, Invalid, NotFound, Unavailable, Unreadable
from mathrag.intervals import fit_monotone
from mathrag.messages import format_count, make_hint
from shared import canonical
from shared.calls import MATHEMATICAL, Request
from shared.lease.memory import estimate_memory, read_context
from shared.mathtext import equations, mathematics, programs
from shared.models import files
from shared.params import CragParams, GradingParams, JudgeCalibration, Limits, Params, RuleragParams
from shared.pipelines.binding import Bound, Pin
from shared.pipelines.registry import Registered
from shared.plugins.loading import explain_unusable, get_usable
from shared.rag.answer_metrics import get_metric
from shared.rag.crag import SHIPPED_VECTORS, Calibration, ListAction, TooFewObservations, calibrate
from shared.rag.grading import (
    TEXT_VERSION,
    Extract,
    extract_choice,
    extract_final,
    get_grader,
    grader_of_results,
    take_whole,
)
from shared.rag.prompts import ANSWER_SLOTS, make_template_reference, template
from shared.replies import Failure, FailureKind
from shared.rules import MINERS_VERSION
from shared.runtime.parameters import check_thresholds
from shared.samples import Decision
from shared.settings import EMBEDDINGS, MODELS
from shared.shapes import FEWEST, KINDS, Architecture, Kind, PluginPin
from shared.storage import jobs, rules
from shared.storage.archive import show_archived
from shared.storage.database import try_decode_params
from shared.storage.labels import FIRST_SAMPLES_OF_SET, count_labels, get_set
from shared.storage.prompts import AnswerPrompt, load_prompt
from shared.storage.samples import SampleWithOutcome, list_labelled_items, read_gold_documents, stream_with_outcomes_in

# Rows of models: what answers calls. A row's identity never changes; a changed model is another row.

REGISTER = text("""
    INSERT INTO models (name, backend, digest, version, options, hash, device, needs_lease, footprint_mib, estimated,
                        architecture)
    VALUES (:name, :backend, :digest, :version, CAST(:options AS jsonb), :hash, :device, :needs_lease, :footprint_mib,
            :estimated, CAST(:architecture AS jsonb))
    ON CONFLICT (hash) DO UPDATE SET registered_at = clock_timestamp(), device = EXCLUDED.device,
        footprint_mib = EXCLUDED.footprint_mib, estimated = EXCLUDED.estimated, architecture = EXCLUDED.architecture,
        served = true
    RETURNING id""")
BY_HASH = text("SELECT id, hash FROM models WHERE hash = ANY(:hashes)")
LATEST = text("SELECT id, hash, digest FROM models WHERE name = :name AND served ORDER BY registered_at DESC LIMIT 1")
SERVED = text("SELECT DISTINCT name FROM models WHERE served AND device IS NOT NULL")
RETIRE = text("""
    UPDATE models SET served = false
    WHERE device = :device AND served AND (CAST(:name AS text) IS NULL OR name = :name)""")
OF_INDEX = text("""
    SELECT i.kind, m.id, m.hash FROM corpora c
    JOIN indexes i ON i.id IN (c.dense_index, c.sparse_index) AND i.state = 'ready'
    JOIN models m ON m.id = i.model_id WHERE c.id = :corpus""")


class ModelIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about a model that changes its replies, and where it runs."""

    name: str
    backend: str
    digest: str | None
    """None if the backend has none; replies are then reused inside one job only."""
    version: str = ""
    options: dict[str, Any] = {}
    device: str | None = None
    needs_lease: bool = False
    footprint_mib: int = 0

    @property
    def hash(self) -> bytes:
        """SHA-256 of name, backend, digest, version, options, and whether the model needs the lease."""
        return canonical.digest([self.name, self.backend, self.digest, self.version, self.options, self.needs_lease])


GRADER = ModelIdentity(
    name="grader",
    backend="grader",
    digest="mathematics",
    version=f"{version('math-verify')}/{version('sympy')}/{mathematics.VERSION}",
)
"""The grader of mathematics and the strict rules as one model; a new version of either grades again."""
VERIFIER = ModelIdentity(
    name="verifier", backend="sympy", digest="equations", version=f"{version('sympy')}/{equations.VERSION}"
)
INTERPRETER = ModelIdentity(
    name="interpreter", backend="sympy", digest="programs", version=f"{version('sympy')}/{programs.VERSION}"
)
"""Stands for the interpreter of programs that models write."""
WEIGHTS = MODELS / "difficulty" / "weights.json"
ESTIMATOR = ModelIdentity(
    name="difficulty", backend="logistic-regression", digest=files.digest(WEIGHTS) if WEIGHTS.exists() else "none"
)
"""The difficulty classifier. Its file names the embedder that it was fitted to, so one digest covers both."""


def grader_identity(name: str) -> ModelIdentity:
    """Return the identity of a grader; text graders depend on Python's version of Unicode, plug-ins on their files."""
    if name == "math":
        return GRADER
    if name in MATHEMATICAL:
        return msgspec.structs.replace(GRADER, name=f"grader-{name}")
    if (plugin := get_grader(name).plugin) is not None:
        version = f"{plugin.distribution} {plugin.version}"
        return ModelIdentity(name=f"grader-{name}", backend="grader", digest=plugin.hash, version=version)
    return ModelIdentity(
        name=f"grader-{name}", backend="grader", digest=name, version=f"{unidata_version}/{TEXT_VERSION}"
    )


def miner_identity(graph: str) -> ModelIdentity:
    """Return the identity of the miners over the graph with this hash, so that equal requests are mined once."""
    return ModelIdentity(name="miner", backend="miner", digest=graph, version=str(MINERS_VERSION))


def bank_identity(bank: str) -> ModelIdentity:
    """Return the identity of the rule bank with this hash, to which jobs are pinned."""
    return ModelIdentity(name="rules", backend="rules", digest=bank)


def embedder_identity(signature: str) -> ModelIdentity:
    """Return the model of the embedder whose vectors this signature determines."""
    return ModelIdentity(name=EMBEDDER, backend="embedder", digest=signature)


BUILT_IN: Mapping[str, ModelIdentity] = {
    "grade": GRADER, "verify": VERIFIER, "execute": INTERPRETER, "estimate": ESTIMATOR,
}  # fmt: skip
"""By role, the code that answers calls itself. Another digest or version makes another call."""
EMBEDDER = "embedder"
"""Name of the row that stands for the retriever's embedder."""
NO_RERANKER = ModelIdentity(name="reranker", backend="none", digest="none")
"""Stands for the reranker while none is configured."""
NOT_CONFIGURED = Failure(kind=FailureKind.NOT_CONFIGURED, detail="no reranker is configured (`retrieval.reranker`)")
"""The reply to every call of `NO_RERANKER`."""


async def register(
    connection: AsyncConnection, identity: ModelIdentity, architecture: Architecture | None = None
) -> int:
    """Register the model and return its row id; jobs get the newest registration of a name.

    A footprint that is not declared is estimated from the architecture, where there is one.
    """
    slots = identity.options.get("parallel", 1)
    memory = estimate_memory(
        declared_mib=identity.footprint_mib,
        architecture=architecture,
        context=read_context(identity.options),
        parallel=slots,
        on_gpu=not (identity.device or "cpu").startswith("cpu"),
    )
    values = {**msgspec.structs.asdict(identity), "hash": identity.hash}
    values["options"] = canonical.encode(identity.options).decode()
    values["architecture"] = canonical.encode(architecture).decode() if architecture else None
    values |= {"footprint_mib": memory.at(slots), "estimated": memory.source == "assumed"}
    return int((await connection.execute(REGISTER, values)).scalar_one())


async def retire(connection: AsyncConnection, device: str, name: str | None = None) -> None:
    """Mark the device's models, or those with this name, as no longer served; its guard registers those that it
    serves."""
    await connection.execute(RETIRE, {"device": device, "name": name})


async def pin_model(connection: AsyncConnection, role: str, name: str) -> Pin:
    """Pin the newest row of the model called `name`.

    Raises:
        Invalid: no guard has registered such a model.
    """
    row = (await connection.execute(LATEST, {"name": name})).first()
    if row is None:
        served = (await connection.execute(SERVED)).scalars()
        hint = make_hint(name, served, "`mathrag model list` shows all; is the guard up?")
        raise Invalid(f"`models.{role}`: no guard serves a model {name!r}", hint=hint)
    return Pin(model_id=row.id, hash=row.hash.hex(), pinned=row.digest is not None)


async def pin_built_in(connection: AsyncConnection) -> dict[str, Pin]:
    """Pin `BUILT_IN`. Rows are written once only, because submissions that write them would wait for each other."""
    hashes = [identity.hash for identity in BUILT_IN.values()]
    found = {row.hash: row.id for row in await connection.execute(BY_HASH, {"hashes": hashes})}
    return {
        role: Pin(model_id=found.get(own.hash) or await register(connection, own), hash=own.hash.hex())
        for role, own in BUILT_IN.items()
    }


async def pin_identity(connection: AsyncConnection, own: ModelIdentity) -> Pin:
    """Pin an identity of the program itself; its row is written once only, as in `pin_built_in`."""
    found = (await connection.execute(BY_HASH, {"hashes": [own.hash]})).first()
    return Pin(model_id=found.id if found else await register(connection, own), hash=own.hash.hex())


async def pin_reranker(connection: AsyncConnection) -> Pin:
    """Pin the newest row of the reranker. The retriever registers it when it starts, even if none is configured."""
    row = (await connection.execute(LATEST, {"name": NO_RERANKER.name})).first()
    if row is None:
        return Pin(model_id=await register(connection, NO_RERANKER), hash=NO_RERANKER.hash.hex())
    return Pin(model_id=row.id, hash=row.hash.hex(), pinned=row.digest is not None)


async def pin_embedder(connection: AsyncConnection) -> Pin:
    """Pin the newest row of the embedder.

    Raises:
        Unavailable: the retriever has not registered one yet.
    """
    row = (await connection.execute(LATEST, {"name": EMBEDDER})).first()
    if row is None:
        raise Unavailable("the retriever has not reported its embedder yet", hint="see the retriever's log")
    return Pin(model_id=row.id, hash=row.hash.hex())


async def pin_indexes(connection: AsyncConnection, corpus: int, name: str) -> dict[str, Pin]:
    """Pin the corpus's current index builds by kind.

    Raises:
        Unavailable: its indexes are not built yet.
    """
    rows = (await connection.execute(OF_INDEX, {"corpus": corpus})).all()
    if len(rows) < 2:
        raise Unavailable(f"the indexes of corpus {name!r} are not ready", hint="wait until it is indexed")
    return {row.kind: Pin(model_id=row.id, hash=row.hash.hex()) for row in rows}


# Check and pin the plug-ins, prompts and rubrics of a job at its submission.

_REQUEST = msgspec.json.Decoder(Request)


def pins_of(pipeline: Registered, params: Params, calls: Iterable[Bound]) -> list[PluginPin]:
    """List the plug-ins that a job's replays need; `calls` are those of its dry run."""
    metrics = [get_metric(name).plugin for name in params.metrics.names]
    used = (pipeline.plugin, get_grader(params.grading.grader).plugin, *metrics)
    # List the operator's templates that these calls are rendered with, each once.
    named = sorted({_REQUEST.decode(bound.body).template.partition("@")[0] for bound in calls})
    found = (get_usable(Kind.TEMPLATE, name) for name in named if name)
    return [*(plugin for plugin in used if plugin is not None), *[plugin.pin for plugin in found if plugin is not None]]


PROMPTS: Mapping[Extract, str] = {
    extract_choice: "choice",
    extract_final: "short-answer",
    take_whole: "answer",
}
"""Shipped prompts, by how graders find the answer in a reply; all others are asked for mathematics (`cot`)."""


def choose_prompt(grader: str) -> str:
    """Return the shipped prompt that asks for what this grader reads; "" for mathematics."""
    return PROMPTS.get(grader_of_results(grader).extract, "")


async def pin_prompt(connection: AsyncConnection, reference: str) -> AnswerPrompt:
    """Find the prompt that a job names.

    Raises:
        Invalid: it does not exist, cannot be used, or needs other slots than `question` and `context`.
    """
    if problem := explain_unusable(Kind.TEMPLATE, reference):
        raise Invalid(f"`params.generate.template`: {problem}", hint="mathrag plugin list")
    if get_usable(Kind.TEMPLATE, reference) and (strange := {*template(reference).required} - {*ANSWER_SLOTS}):
        listed = ", ".join(sorted(strange))
        problem = f"prompt {reference!r} needs {listed}, and answers are asked for with `question` and `context`"
        raise Invalid(f"`params.generate.template`: {problem}", hint="correct the file, then restart the stack")
    try:
        return await load_prompt(connection, reference)
    except NotFound as error:
        raise Invalid(f"`params.generate.template`: {error}", hint=error.hint) from error


def check_shows_documents(prompt: AnswerPrompt | None, calls: Iterable[Bound]) -> None:
    """Check that the prompt has a place for documents, if the calls of the dry run have any.

    Raises:
        Invalid: it has none, so the search would be for nothing.
    """
    if prompt is None or "{{context}}" in prompt.text:
        return
    requests = (_REQUEST.decode(bound.body) for bound in calls)
    if any("context" in request.values for request in requests):
        problem = f"prompt {prompt.name!r} has no {{{{context}}}}, so the model would not see the documents"
        hint = "add {{context}} to its text, or choose a pipeline without documents, such as zero-shot"
        raise Invalid(f"`params.generate.template`: {problem}", hint=hint)


def with_rubric(grading: GradingParams) -> GradingParams:
    """Replace `@NAME` by the text of that rubric, so that the job keeps it.

    Raises:
        Invalid: the rubric does not exist, or it cannot be used.
    """
    if not grading.rubric.startswith("@"):
        return grading
    name = grading.rubric[1:]
    found = get_usable(Kind.RUBRIC, name)
    if found is None:
        problem = explain_unusable(Kind.RUBRIC, name) or f"no rubric {name!r} is in the folder `plugins.rubrics`"
        raise Invalid(f"`params.grading.rubric`: {problem}", hint="mathrag plugin list")
    return msgspec.structs.replace(grading, rubric=next(iter(found.texts.values())))


# Compute thresholds for `crag` from a job whose result lists have labels.
#
# Labels come from the dataset's gold documents, or from the judge's verdicts in another `crag` job on the same
# questions.

PIPELINE = "crag"
"""Only this pipeline's decisions hold the evaluator's confidence."""
TRUST = 0.9
"""Default share of lists that must be as the thresholds say."""


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """Calibrated thresholds of an evaluator."""

    id: uuid.UUID
    """Id of the job."""
    name: str
    """Name of the job."""
    evaluator: str
    """The evaluator that the thresholds are for."""
    skipped: int
    """Number of answered items with a label but without a confidence from the evaluator."""
    calibration: Calibration
    """The thresholds and the data that they come from."""


async def calibrate_crag(
    connection: AsyncConnection, reference: str, trust: float = TRUST, judged_by: str | None = None
) -> Calibrated:
    """Compute thresholds from each item's first confidence and from whether its first list holds a relevant document.

    The dataset's gold documents decide on relevance, or with `judged_by` the judge of another job. Repeats of an
    item add no information and are left out.

    Raises:
        NotFound: no such job.
        Conflict: a job has another pipeline, dataset or corpus, or there are too few items of either kind.
    """
    row, job, evaluator = await _find_crag_job(connection, reference)
    judged = None if judged_by is None else await _labels_from_judge(connection, job, judged_by)
    pairs: list[tuple[float, bool]] = []
    skipped = 0
    async for batch in stream_with_outcomes_in(connection, row):
        if judged is None:
            indexes = [sample.index for sample, _ in batch]
            span = min(indexes), max(indexes)
            known = await list_labelled_items(connection, row, *span)
            labels = gold_labels(batch, known, await read_gold_documents(connection, row, *span))
        else:
            labels = judged
        found = observations(batch, labels, evaluator)
        pairs += [pair for pair in found if pair is not None]
        skipped += found.count(None)
    try:
        calibration = await to_thread.run_sync(calibrate, pairs, trust)
    except TooFewObservations as few:
        hint = (
            "give the items `gold_documents` (an empty object `{}` means that nothing is relevant),"
            " or name a job that judged them"
        )
        raise Conflict(f"job {job.name!r}: {few}", hint=hint) from few
    return Calibrated(id=job.id, name=job.name, evaluator=evaluator, skipped=skipped, calibration=calibration)


async def _find_crag_job(connection: AsyncConnection, reference: str) -> tuple[int, jobs.Job, str]:
    """Return the row id, the job and the evaluator of a job of `crag`."""
    row = await jobs.resolve(connection, reference)
    job = await jobs.view(connection, row)
    if job.pipeline != PIPELINE:
        hint = f"name a job of `{PIPELINE}`: only that pipeline records how sure its evaluator was"
        raise Conflict(f"job {job.name!r} runs `{job.pipeline}`, which does not record confidences", hint=hint)
    if job.params is None:
        raise Unreadable(f"job {job.name!r}: {job.unreadable}", hint="ask the release that ran it")
    return row, job, job.params.crag.evaluator


async def _labels_from_judge(connection: AsyncConnection, job: jobs.Job, reference: str) -> dict[int, bool]:
    """Return, by item, whether the judge of another job called its first list correct."""
    row, judge, evaluator = await _find_crag_job(connection, reference)
    searched, wanted = (judge.dataset, judge.corpus), (job.dataset, job.corpus)
    if evaluator != "judge" or searched != wanted:
        raise Conflict(
            f"job {judge.name!r} cannot label the lists of job {job.name!r}: it used the evaluator {evaluator!r},"
            f" dataset {judge.dataset!r} and corpus {judge.corpus!r}",
            hint="name a job with `crag.evaluator=judge` over the same dataset and corpus",
        )
    labels: dict[int, bool] = {}
    async for batch in stream_with_outcomes_in(connection, row):
        for index, first in _list_first_decisions(batch, evaluator):
            if first is not None:
                labels[index] = first.action == ListAction.CORRECT
    return labels


def gold_labels(
    batch: Collection[SampleWithOutcome], known: Collection[int], relevant: Mapping[int, Mapping[str, int]]
) -> dict[int, bool]:
    """Return, for each item in `known` (those with labels), whether its first list holds a relevant document."""
    labels = {}
    for row, outcome in batch:
        if outcome and row.index in known and row.repeat == 0:
            first = {each.document for each in outcome.trace.candidates if each.dense_rank or each.sparse_rank}
            labels[row.index] = not first.isdisjoint(relevant.get(row.index, ()))
    return labels


def observations(
    batch: Collection[SampleWithOutcome], labels: Mapping[int, bool], evaluator: str
) -> list[tuple[float, bool] | None]:
    """Return (confidence, relevant) of each answered item with a label; None if it has no confidence."""
    found = [(index, first) for index, first in _list_first_decisions(batch, evaluator) if index in labels]
    confidences = [(first.detail.get("confidence") if first else None, labels[index]) for index, first in found]
    return [(confidence, label) if isinstance(confidence, float) else None for confidence, label in confidences]


def _list_first_decisions(batch: Collection[SampleWithOutcome], evaluator: str) -> list[tuple[int, Decision | None]]:
    """Return (item, the evaluator's first decision) for each answered item."""
    found = []
    for row, outcome in batch:
        if outcome and row.repeat == 0:
            first = next((each for each in outcome.trace.decisions if each.stage == PIPELINE), None)
            is_own = first and first.fallback is None and first.detail.get("evaluator") == evaluator
            found.append((row.index, first if is_own else None))
    return found


# Pin `crag`'s thresholds at submission, so that replays and audits depend on nothing that is learnt later.

SELECT_EMBEDDER = text("""
    SELECT i.params ->> 'embedder' FROM corpora c JOIN indexes i ON i.id = c.dense_index WHERE c.name = :corpus""")
EMBEDDER_OF_JOB = text("""
    SELECT i.params ->> 'embedder' FROM jobs j
    JOIN indexes i ON i.model_id = CAST(j.pins -> 'dense' ->> 'model_id' AS integer) WHERE j.public_id = :job""")


async def pin_thresholds(connection: AsyncConnection, params: CragParams, corpus: str) -> CragParams:
    """Add the thresholds of the corpus's embedder to the parameters, and the calibrated ones if requested.

    Thresholds that are already there stay: the repeated job pinned them.

    Raises:
        Invalid: no calibrating job is named, it cannot calibrate this one, or its thresholds contradict given ones.
        NotFound, Conflict: see `calibrated`.
    """
    embedder = (await connection.execute(SELECT_EMBEDDER, {"corpus": corpus})).scalar()
    if params.similarity is None and embedder == await to_thread.run_sync(get_shipped_signature):
        params = replace(params, similarity=SHIPPED_VECTORS)
    if params.thresholds == "fixed" or params.calibrated is not None:
        return params
    if not params.calibrated_by:
        hint = "name a completed `crag` job over labelled or judged items: --set crag.calibrated_by=JOB"
        raise Invalid("`params.crag.calibrated_by`: calibrated thresholds need the job that gives them", hint=hint)
    found = await calibrate_crag(connection, params.calibrated_by, judged_by=params.judged_by or None)
    if found.evaluator != params.evaluator:
        used = f"job {found.name!r} used the evaluator {found.evaluator!r}, not {params.evaluator!r}"
        message = f"`params.crag.calibrated_by`: {used}"
        raise Invalid(message, hint=f"choose a job of this evaluator, or --set crag.evaluator={found.evaluator}")
    if found.evaluator == "similarity":
        # Raise Invalid unless the calibrating job used the same embedder, because thresholds apply to its cosines.
        other = (await connection.execute(EMBEDDER_OF_JOB, {"job": found.id})).scalar()
        if other != embedder:
            message = (
                f"`params.crag.calibrated_by`: job {found.name!r} searched with another embedder than this corpus has"
            )
            raise Invalid(message, hint="choose a job over a corpus with this embedder, or run one over this corpus")
    limits = Limits(upper=found.calibration.upper.value, lower=found.calibration.lower.value)
    pinned = replace(params, calibrated_by=str(found.id), calibrated=limits)
    check_thresholds(pinned)
    return pinned


@cache
def get_shipped_signature() -> str:
    """Return the signature of the shipped embedder."""
    from shared.models.embedding import StaticEmbedder  # NumPy, which the guard and the generator never need

    return StaticEmbedder(EMBEDDINGS).signature


# Calibrate a judge by people's labels: a monotone map from its ratings 1 to 5 to the labels' scale.

JUDGE = text("""
    SELECT m.name, encode(m.hash, 'hex') AS hash, j.params, substring(
            convert_from(c.request, 'UTF8') FROM '"template":"(' || :rubric || '@[0-9a-f]+)"') AS rubric
    FROM samples s JOIN jobs j ON j.id = s.job_id
    JOIN steps t ON t.sample_id = s.id JOIN calls c ON c.id = t.call_id JOIN models m ON m.id = c.model_id
    WHERE s.id = ANY(:samples) AND c.role = 'judge'
        AND convert_from(c.request, 'UTF8') LIKE '%"' || :rubric || '@%' LIMIT 1""")
(RUBRIC,) = KINDS["documents"].rubrics


class RatingJudge(msgspec.Struct, frozen=True, kw_only=True):
    """The identity of the judge whose ratings are calibrated."""

    model: str
    """Hash of the model (hex)."""
    rubric: str
    """`id@hash` of the rubric."""
    anchors: Mapping[str, str]


class RatingWorth(msgspec.Struct, frozen=True, kw_only=True):
    """One rating of the judge."""

    rating: int
    """Rating of the judge, from 1 to 5."""
    tasks: int
    """Number of tasks that the judge gave this rating and people labelled blindly."""
    mean: float | None
    """Mean of people's labels of these tasks; null if there are none."""
    worth: float
    """Calibrated value: the mean, adjusted so that it never falls as the rating grows."""


class LabelCalibration(msgspec.Struct, frozen=True, kw_only=True):
    """The current calibration of the judge's ratings by people's labels."""

    set: str
    """Name of the label set."""
    hash: str
    """Identity of the calibrated judge; a job with `gate.labels` has it in `gate.calibrated.hash`. It changes with
    every further label."""
    judge: str
    """Name of the judge model."""
    judge_hash: str
    """Hash that identifies the version of the judge model."""
    tasks: int
    """Number of tasks with blind labels."""
    ratings: tuple[RatingWorth, ...]
    """Calibrated value of every rating."""


async def pin_judge_calibration(connection: AsyncConnection, params: Params, pin: Pin | None) -> Params:
    """Add the judge's calibration to the parameters, if they name a label set.

    A calibration that is already there stays: the repeated job pinned it.

    Args:
        connection: an open transaction.
        params: the requested parameters.
        pin: the job's judge.

    Raises:
        NotFound: the set does not exist.
        Conflict: see `calibrate_judge`.
        Invalid: the set holds ratings of another judge, by another rubric or between other anchors.
    """
    if not params.gate.labels or params.gate.calibrated is not None:
        return params
    found, judge = await _calibrate(connection, params.gate.labels)
    if pin is None or judge != RatingJudge(
        model=pin.hash, rubric=make_template_reference(RUBRIC), anchors=params.anchors
    ):
        raise Invalid(
            f"`params.gate.labels`: the documents of {found.set!r} were rated by model {found.judge!r}"
            f" ({judge.model[:12]}) with its rubric and anchors, not by this job's judge",
            hint="label documents of a job with this job's judge",
        )
    worth = tuple(each.worth for each in found.ratings)
    return replace(params, gate=replace(params.gate, calibrated=JudgeCalibration(hash=found.hash, ratings=worth)))


async def calibrate_judge(connection: AsyncConnection, name: str) -> LabelCalibration:
    """Calibrate the judge by the blind labels of the set called `name`.

    Each task counts once, with the mean of its labellers' last labels; abstentions are ignored.

    Raises:
        NotFound: the set does not exist.
        Conflict: its tasks are not documents, its job was purged, or too few tasks have a label.
    """
    found, _ = await _calibrate(connection, name)
    return found


async def _calibrate(connection: AsyncConnection, name: str) -> tuple[LabelCalibration, RatingJudge]:
    of = await get_set(connection, name)
    if of.what != "documents":
        raise Conflict(
            f"label set {of.name!r} contains labels of {of.what}, not of documents",
            hint="choose a label set of `documents`",
        )
    samples = (await connection.execute(FIRST_SAMPLES_OF_SET, {"set": of.id})).all()
    ids = [sample.id for sample in samples]
    async with show_archived(connection, samples[0].job_id if samples else 0, ids):
        row = (await connection.execute(JUDGE, {"samples": ids, "rubric": RUBRIC})).first()
    params, _ = try_decode_params(row.params if row else None, "")
    if row is None or params is None:
        raise Conflict(f"label set {of.name!r}: its job was purged, so the judge of its ratings is unknown")
    model, judge = row.name, RatingJudge(model=row.hash, rubric=row.rubric, anchors=params.anchors)
    counted = await count_labels(connection, of, blind=True)
    by_rating: defaultdict[Any, list[float]] = defaultdict(list)
    for task in counted.tasks:
        given = [float(value) for value in counted.labels.get(task.number, {}).values() if value is not None]
        if given:
            by_rating[task.value].append(fmean(given))
    tasks = sum(map(len, by_rating.values()))
    if tasks < FEWEST:
        labelled = format_count(tasks, "task has", "tasks have")
        message = f"label set {name!r}: {labelled} a blind label, and a calibration needs {FEWEST}"
        raise Conflict(message, hint=f"mathrag label next {name}")
    means = [fmean(by_rating[rating]) if rating in by_rating else None for rating in range(1, 6)]
    weights = [len(by_rating.get(rating, ())) for rating in range(1, 6)]
    worth = await to_thread.run_sync(fit_monotone, means, weights)
    ratings = tuple(
        RatingWorth(rating=rating, tasks=weights[rating - 1], mean=means[rating - 1], worth=worth[rating - 1])
        for rating in range(1, 6)
    )
    votes = ((number, *vote) for number, said in counted.labels.items() for vote in said.items())
    identity = canonical.digest([judge, of.hash, sorted(vote for vote in votes if vote[-1] is not None), worth]).hex()
    return LabelCalibration(
        set=name, hash=identity, judge=model, judge_hash=judge.model, tasks=tasks, ratings=ratings
    ), judge


GRAPH = text("""
    SELECT name, encode(hash, 'hex') AS hash, encode(phrases_hash, 'hex') AS phrases FROM graphs
    WHERE corpus_id = :corpus ORDER BY id LIMIT 1""")


async def pin_rulerag(
    connection: AsyncConnection,
    params: Params,
    corpus: int | None,
    has_judge: bool,  # noqa: FBT001 - looked up by position
) -> RuleragParams:
    """Add the phrases of the corpus's graph to the parameters; without a judge model, none is asked for a relation.

    A corpus that belongs to no graph is accepted, and so is a bank whose graph is unknown.

    Raises:
        Invalid: no bank is named, it was mined from another graph, or rewritten queries lack a judge model.
        NotFound, Conflict: see `rule_banks.get_sealed_hash`.
    """
    rulerag = params.rulerag
    if rulerag.most and not params.rules:
        hint = "mathrag rules list, then --set rules=NAME"
        raise Invalid("`params.rules`: pipeline 'rulerag' needs a rule bank, or `rulerag.most` 0", hint=hint)
    if rulerag.query == "rewritten" and not has_judge:
        hint = "name one with --model judge=NAME, configure `roles.judge`, or set `rulerag.query` to `joined`"
        raise Invalid("`params.rulerag.query`: `rewritten` needs a judge model, but the job has none", hint=hint)
    graph = (await connection.execute(GRAPH, {"corpus": corpus})).first()
    if graph is not None and params.rules:
        await _check_graph(connection, params.rules, graph.name, graph.hash)
    phrases = (graph and graph.phrases) or ""
    return replace(rulerag, phrases=phrases, ask=rulerag.ask and has_judge)


async def _check_graph(connection: AsyncConnection, name: str, graph: str, hash_: str) -> None:
    bank = await rules.get_bank(connection, name)
    if bank.graph_hash in (None, hash_):
        return
    mined = f"{bank.graph!r}" if bank.graph else f"with the hash {str(bank.graph_hash)[:12]}"
    hint = f"mathrag rules mine --graph {graph} --name NAME" + (f", or --corpus {bank.graph}" if bank.graph else "")
    message = f"`params.rules`: rule bank {name!r} was mined from graph {mined}, and the corpus holds graph {graph!r}"
    raise Invalid(message, hint=hint)
