"""Rows of models: what answers calls. A row's identity never changes; a changed model is another row."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any
from unicodedata import unidata_version

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared import suggestions
from shared.contracts import canonical
from shared.contracts.architecture import Architecture
from shared.contracts.grading import MATHEMATICAL
from shared.contracts.replies import Failure, FailureKind
from shared.errors import Invalid, Unavailable
from shared.lease.memory import estimate_memory, read_context
from shared.mathtext import mathematics, verification
from shared.models import weights
from shared.pipelines import source
from shared.pipelines.binding import Pin
from shared.rag.graders import get_grader
from shared.retrieval_settings import MODELS

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
    name="grader", backend="grader", digest=mathematics.digest(), version=f"{version('math-verify')}/{version('sympy')}"
)
"""The grader of mathematics and the strict rules as one model; a new version of either grades again."""
VERIFIER = ModelIdentity(name="verifier", backend="sympy", digest=verification.digest(), version=version("sympy"))
WEIGHTS = MODELS / "difficulty" / "weights.json"
ESTIMATOR = ModelIdentity(
    name="difficulty", backend="logistic-regression", digest=weights.digest(WEIGHTS) if WEIGHTS.exists() else "none"
)
"""The difficulty classifier. Its file names the embedder that it was fitted to, so one digest covers both."""


def grader_identity(name: str) -> ModelIdentity:
    """Return the identity of a grader; text graders depend on Python's version of Unicode, others on their code."""
    if name == "math":
        return GRADER
    if name in MATHEMATICAL:
        return msgspec.structs.replace(GRADER, name=f"grader-{name}")
    if (plugin := get_grader(name).plugin) is not None:
        version = f"{plugin.distribution} {plugin.version}"
        return ModelIdentity(name=f"grader-{name}", backend="grader", digest=plugin.hash, version=version)
    return ModelIdentity(name=f"grader-{name}", backend="grader", digest=name, version=f"{unidata_version}/1")


MINERS = canonical.digest(sorted(source.read_packages(["shared.rules"]).items())).hex()
"""SHA-256 of the sources of all miners, as this process imported them; another version mines again."""


def miner_identity(graph: str) -> ModelIdentity:
    """Return the identity of the miners over the graph with this hash, so that equal requests are mined once."""
    return ModelIdentity(name="miner", backend="miner", digest=graph, version=MINERS)


def bank_identity(bank: str) -> ModelIdentity:
    """Return the identity of the rule bank with this hash, to which jobs are pinned."""
    return ModelIdentity(name="rules", backend="rules", digest=bank)


def embedder_identity(signature: str) -> ModelIdentity:
    """Return the model of the embedder whose vectors this signature determines."""
    return ModelIdentity(name=EMBEDDER, backend="embedder", digest=signature)


BUILT_IN: Mapping[str, ModelIdentity] = {"grade": GRADER, "verify": VERIFIER, "estimate": ESTIMATOR}
"""By role, what the code itself answers with. Another digest or version makes another call."""
EMBEDDER = "embedder"
"""Name of the row that stands for what the retriever embeds with."""
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
    """Mark the device's models, or those with this name, as no longer served; its guard registers what it serves."""
    await connection.execute(RETIRE, {"device": device, "name": name})


async def pin(connection: AsyncConnection, role: str, name: str) -> Pin:
    """Pin the newest row of the model called `name`.

    Raises:
        Invalid: no guard has registered such a model.
    """
    row = (await connection.execute(LATEST, {"name": name})).first()
    if row is None:
        served = (await connection.execute(SERVED)).scalars()
        hint = suggestions.make_hint(name, served, "`mathrag model list` shows all; is the guard up?")
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


async def pin_grader(connection: AsyncConnection, name: str) -> Pin:
    """Pin the grader of the job's answers."""
    return await pin_identity(connection, grader_identity(name))


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
        raise Unavailable("the retriever has not said yet what it embeds with", hint="see its log")
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
