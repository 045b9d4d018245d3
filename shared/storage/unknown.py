"""The error for an unknown name, which suggests a similar one."""

from typing import Literal

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared import suggestions
from shared.errors import NotFound

MOST = 1000
"""Number of newest names to compare, because a service may have a million jobs."""
NAMES = {
    "job": text("SELECT name FROM jobs WHERE NOT online ORDER BY id DESC LIMIT :most"),
    "experiment": text("SELECT name FROM experiments ORDER BY id DESC LIMIT :most"),
    "dataset": text("SELECT name FROM datasets WHERE NOT online ORDER BY id DESC LIMIT :most"),
    "corpus": text("SELECT name FROM corpora ORDER BY id DESC LIMIT :most"),
    "rules": text("SELECT name FROM rule_banks ORDER BY id DESC LIMIT :most"),
    "graph": text("SELECT name FROM graphs ORDER BY id DESC LIMIT :most"),
    "label": text("SELECT name FROM label_sets ORDER BY id DESC LIMIT :most"),
}
Kind = Literal["job", "experiment", "dataset", "corpus", "graph", "rules", "label"]
CALLED = {"rules": "rule bank", "label": "label set"}
"""Kinds whose name differs from their command."""


async def make_not_found(connection: AsyncConnection, kind: Kind, name: str) -> NotFound:
    """Return the error that no `kind` is called `name`, with a similar name as a hint."""
    known = (await connection.execute(NAMES[kind], {"most": MOST})).scalars()
    return NotFound(
        f"no {CALLED.get(kind, kind)} {name!r}", hint=suggestions.make_hint(name, known, f"mathrag {kind} list")
    )
