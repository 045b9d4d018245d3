"""Pin `crag`'s thresholds at submission, so that replays and audits depend on nothing that is learnt later."""

from functools import cache

from anyio import to_thread
from msgspec.structs import replace
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.params import CragParams, Limits
from shared.errors import Invalid
from shared.models.static_embeddings import StaticEmbedder
from shared.rag.crag import SHIPPED_VECTORS
from shared.retrieval_settings import MODELS
from shared.runtime.crag_calibration import Calibrated, calibrate_crag
from shared.runtime.parameters import check_thresholds

EMBEDDER = text("""
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
    embedder = (await connection.execute(EMBEDDER, {"corpus": corpus})).scalar()
    if params.similarity is None and embedder == await to_thread.run_sync(get_shipped_signature):
        params = replace(params, similarity=SHIPPED_VECTORS)
    if params.thresholds == "fixed" or params.calibrated is not None:
        return params
    if not params.calibrated_by:
        hint = "such as `mathrag job calibrate` takes: a completed job of `crag` over labelled or judged items"
        raise Invalid("`params.crag.calibrated_by`: calibrated thresholds need the job that gives them", hint=hint)
    found = await calibrate_crag(connection, params.calibrated_by, judged_by=params.judged_by or None)
    if found.evaluator != params.evaluator:
        raise Invalid(f"`params.crag.calibrated_by`: {found.name!r} evaluates by {found.evaluator}")
    if found.evaluator == "similarity":
        await _check_embedder(connection, found, embedder)
    limits = Limits(upper=found.calibration.upper.value, lower=found.calibration.lower.value)
    pinned = replace(params, calibrated_by=str(found.id), calibrated=limits)
    check_thresholds(pinned)
    return pinned


async def _check_embedder(connection: AsyncConnection, found: Calibrated, embedder: str | None) -> None:
    """Raise Invalid unless the calibrating job used the same embedder, because thresholds apply to its cosines."""
    other = (await connection.execute(EMBEDDER_OF_JOB, {"job": found.id})).scalar()
    if other != embedder:
        raise Invalid(f"`params.crag.calibrated_by`: {found.name!r} searched by the vectors of another embedder")


@cache
def get_shipped_signature() -> str:
    """Return the signature of the shipped embedder."""
    return StaticEmbedder(MODELS / "static-embeddings").signature
