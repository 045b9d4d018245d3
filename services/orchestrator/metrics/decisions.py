"""Counts the decisions of methods for ended samples, and the parts that fell back to a simpler way."""

import logging
from collections import Counter
from collections.abc import Mapping

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from services.orchestrator.metrics.metric_values import MetricValues
from shared.storage.database import try_decode

SOME = b'"decisions":[{'
"""Bytes to find in an outcome. It is canonical JSON, in which text cannot look like a field, because its quotes are
escaped.
"""
# Parsed here, not in the database: a model may write text that PostgreSQL refuses to parse as JSON.
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


async def count(
    connection: AsyncConnection, values: MetricValues, condition: str, window: Mapping[str, object]
) -> None:
    """Add the decisions of the samples in `window`; the database leaves out samples without decisions."""
    outcomes = await connection.execute(text(OUTCOMES.replace("$window", condition)), {**window, "some": SOME})
    decided: Counter[tuple[str, str, str | None]] = Counter()
    for (stored,) in outcomes:
        outcome, problem = try_decode(stored, _Outcome, "an outcome")
        if outcome is None:
            _log.warning("not counted: %s", problem)
            continue
        decided.update((each.stage, each.action, each.fallback) for each in outcome.trace.decisions)
    for (stage, action, fallback), n in decided.items():
        values.count("mathrag_decisions_total", [stage, action], n)
        if fallback is not None:
            values.count("mathrag_fallbacks_total", [stage, fallback], n)
