"""Which samples a list holds: SQL narrows it, and what follows from an outcome is told by that outcome's rules."""

from functools import cache

import msgspec
from sqlalchemy import TextClause

from shared.contracts.samples import Outcome, Strategy
from shared.rag import candidates
from shared.rag.taxonomy import Ending
from shared.storage.sql import sql
from shared.storage.states import SampleState

CONDITIONS = {
    "state": "s.state = :state",
    "correct": "o.correct = :correct",
    "wrong": "NOT o.correct",
    "differing": "o.correct <> o.strict",
    "subject": "i.subject = :subject",
    "level": "i.level = :level",
    "text": "(i.question ILIKE :text OR o.answer ILIKE :text)",
    "moved": "o.sample_id IS NOT NULL",
}
"""By filter."""
OF_ENDINGS = {
    Ending.CORRECT: "o.correct",
    Ending.REFUSED: "(s.failure = 'refused' OR o.extraction = 'refused')",
    Ending.FAILED: "s.state = {FAILED}",
    Ending.EXTRACTION: "o.extraction IN ('missing', 'unbalanced')",
    Ending.TRUNCATED: "s.state = {COMPLETED} AND o.correct IS NOT TRUE",
    Ending.UNGRADED: "s.state = {COMPLETED} AND o.correct IS NOT TRUE",
}
"""What every sample with this ending has; `Ended` decides."""
WRONG = "NOT o.correct AND o.extraction = 'ok'"
"""The same of all other endings."""
# What rules and the verifier say has features; in a text the quotes would be escaped.
FEATURED = "position(CAST('\\x{}' AS bytea) IN o.outcome) > 0".format(b'"features":{'.hex())
OF_SCORERS = {
    Strategy.RULES: FEATURED,
    Strategy.VERIFIER: "o.sample_id IS NOT NULL",
    Strategy.JUDGE: f"NOT {FEATURED}",
}
"""What every sample has whose documents were scored by them; `candidates.scored_by` decides."""
# Keyset over the unique index (job_id, kind, ordinal, repeat): every page costs the same. Outcomes are long: they are
# fetched for the rows that were found alone.
FOUND = """
    SELECT s.id, s.ordinal, s.repeat, s.state, s.failure, s.detail, s.ended_at, i.custom_id, i.question, i.gold,
        i.subject, i.level, o.correct, o.strict
    FROM samples s JOIN jobs j ON j.id = s.job_id
    JOIN items i ON {ASKED_BY_SAMPLE}
    LEFT JOIN outcomes o ON o.sample_id = s.id
    WHERE s.job_id = :job AND s.kind = 'item' AND (s.ordinal, s.repeat) > (:ordinal, :repeat) AND s.ordinal < :until"""
PAGE = """
    WITH found AS MATERIALIZED ({found} ORDER BY s.ordinal, s.repeat LIMIT :n)
    SELECT found.*, o.outcome FROM found LEFT JOIN outcomes o ON o.sample_id = found.id
    ORDER BY found.ordinal, found.repeat"""
ENDED = "s.state >= {COMPLETED}"


class Only(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which samples a list holds; None: whatever it is."""

    differing: bool = False
    """Those that the two graders judge differently."""
    wrong: bool = False
    """Those whose answer is wrong (`correct` is false); failed samples have no verdict."""
    state: str | None = None
    correct: bool | None = None
    subject: str | None = None
    level: str | None = None
    text: str | None = None
    """In the question or the answer, whatever its case."""
    ending: Ending | None = None
    scored_by: Strategy | None = None
    """Who scored the documents."""
    moved: bool | None = None
    """Whether the prompt is another one than without reranking."""

    @property
    def asked(self) -> dict[str, object]:
        """The filters that are set."""
        fields = ((field, getattr(self, field.name)) for field in msgspec.structs.fields(self))
        return {field.name: value for field, value in fields if value != field.default}

    @property
    def reads_outcomes(self) -> bool:
        """Whether SQL alone cannot tell."""
        return self.ending is not None or self.scored_by is not None or self.moved is not None

    def values(self) -> dict[str, object]:
        """Of the statement's parameters."""
        values = {name: value for name, value in self.asked.items() if f":{name}" in CONDITIONS.get(name, "")}
        if self.state is not None:
            values["state"] = SampleState[self.state.upper()].value
        if self.text is not None:
            values["text"] = f"%{_literal(self.text)}%"
        return values

    def has(self, outcome: Outcome | None) -> bool:
        """Whether a sample with this outcome is one of these, as far as SQL and its ending do not tell."""
        if self.scored_by is not None and (
            outcome is None or candidates.scored_by(outcome.trace) is not self.scored_by
        ):
            return False
        return self.moved is None or (outcome is not None and candidates.moved(outcome) is self.moved)


EVERY = Only()


def statement(only: Only, *, ended: bool = False) -> TextClause:
    """A page of these samples; with `ended` only those that completed, failed or were cancelled."""
    conditions = [CONDITIONS[name] for name in only.asked if name in CONDITIONS]
    if only.ending is not None:
        conditions.append(OF_ENDINGS.get(only.ending, WRONG))
    if only.scored_by is not None:
        conditions.append(OF_SCORERS[only.scored_by])
    return _statement((*conditions, ENDED) if ended else tuple(conditions))


@cache
def _statement(conditions: tuple[str, ...]) -> TextClause:
    return sql(PAGE.format(found=" AND ".join((FOUND, *conditions))))


def _literal(text: str) -> str:
    """`text` in a pattern of LIKE, where nothing of it stands for anything else."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
