"""With what a job was accepted: commit, version, image, schema, configuration; ids and indexes of its corpus then."""

import asyncio
from importlib.metadata import version
from typing import Any

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts import canonical
from shared.release import checkout
from shared.settings import Settings

SCHEMA = text("SELECT version_num FROM alembic_version")
INDEXES = text("""
    SELECT i.kind, encode(i.signature, 'hex') AS signature, encode(i.file_hash, 'hex') AS file_hash, i.documents,
        i.params
    FROM corpora c JOIN indexes i ON i.id IN (c.dense_index, c.sparse_index) WHERE c.id = :corpus""")
IDS = text("SELECT encode(ids, 'hex') FROM corpora WHERE id = :corpus")
DECIDING = {"models", "roles", "retrieval", "device", "workers", "patience_s"}
"""Settings that decide what is computed and how. Named one by one: a secret of tomorrow is not among them."""
DECIDING_NOTHING = {"models": {"__all__": {"price"}}}
"""What stands among them and changes no reply."""


async def accepting(
    connection: AsyncConnection, settings: Settings, corpus: int | None, defaults: int | None = None
) -> dict[str, Any]:
    """What is kept in `jobs.code`: nothing of it changes after the job was accepted.

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
    """SHA-256 over the settings that decide what is computed; addresses and passwords are none of them."""
    return canonical.digest(settings.model_dump(mode="json", include=DECIDING, exclude=DECIDING_NOTHING)).hex()
