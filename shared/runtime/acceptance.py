"""What a job was accepted with: commit, version, image, schema, configuration, and its corpus's ids and indexes."""

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
"""Settings that decide what is computed. They are listed one by one so that a secret added later is not included."""
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
    """Return the SHA-256 of the settings that decide what is computed; addresses and passwords are left out."""
    return canonical.digest(settings.model_dump(mode="json", include=DECIDING, exclude=DECIDING_NOTHING)).hex()
