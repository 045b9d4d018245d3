"""What methods decided for samples that have ended, and which of their parts had to be done the plain way."""

import logging
from collections import Counter
from collections.abc import Mapping

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.metrics.reading import Reading
from shared.storage.stored import decoded

SOME = b'"decisions":[{'
"""In an outcome's bytes: canonical JSON, in which a text cannot look like a field, as its quotes are escaped."""
# Read here and not by the database: what a model wrote may hold what PostgreSQL refuses to read as JSON.
OUTCOMES = """
    SELECT o.outcome FROM samples s JOIN outcomes o ON o.sample_id = s.id
    WHERE s.kind = 'item' AND position(CAST(:some AS bytea) IN o.outcome) > 0 AND $window"""


class _Decision(msgspec.Struct):
    stage: str
    action: str
    fallback: str | None = None


class _Trace(msgspec.Struct):
    decisions: tuple[_Decision, ...]


class _Outcome(msgspec.Struct):
    trace: _Trace


_log = logging.getLogger(__name__)


async def count(connection: AsyncConnection, reading: Reading, condition: str, window: Mapping[str, object]) -> None:
    """Add the decisions of the samples in `window`; samples of methods that decide nothing are not even sent."""
    outcomes = await connection.execute(text(OUTCOMES.replace("$window", condition)), {**window, "some": SOME})
    decided: Counter[tuple[str, str, str | None]] = Counter()
    for (stored,) in outcomes:
        outcome, problem = decoded(stored, _Outcome, "an outcome")
        if outcome is None:
            _log.warning("not counted: %s", problem)
            continue
        decided.update((each.stage, each.action, each.fallback) for each in outcome.trace.decisions)
    for (stage, action, fallback), n in decided.items():
        reading.count("mathrag_decisions_total", [stage, action], n)
        if fallback is not None:
            reading.count("mathrag_fallbacks_total", [stage, fallback], n)
