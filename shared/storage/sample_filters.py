"""Filter lists of samples: SQL narrows them down, and conditions on outcomes are checked afterwards."""

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
"""SQL condition of each filter."""
OF_ENDINGS = {
    Ending.CORRECT: "o.correct",
    Ending.REFUSED: "(s.failure = 'refused' OR o.extraction = 'refused')",
    Ending.FAILED: "s.state = {FAILED}",
    Ending.EXTRACTION: "o.extraction NOT IN ('ok', 'refused')",
    Ending.TRUNCATED: "s.state = {COMPLETED} AND o.correct IS NOT TRUE",
    Ending.UNGRADED: "s.state = {COMPLETED} AND o.correct IS NOT TRUE",
}
"""Necessary SQL condition of each ending; the taxonomy decides."""
WRONG = "NOT o.correct AND o.extraction = 'ok'"
"""Necessary SQL condition of all other endings."""
# Scores by rules and by the verifier have features. Inside a text, the quotes would be escaped.
FEATURED = "position(CAST('\\x{}' AS bytea) IN o.outcome) > 0".format(b'"features":{'.hex())
OF_SCORERS = {
    Strategy.RULES: FEATURED,
    Strategy.VERIFIER: "o.sample_id IS NOT NULL",
    Strategy.JUDGE: f"NOT {FEATURED}",
}
"""Necessary SQL condition of each scorer; `candidates.scored_by` decides."""
# Keyset pagination over the unique index (job_id, kind, ordinal, repeat): every page costs the same. Outcomes are long,
# so they are fetched only for the rows of the page.
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


class SampleSelection(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Filters of a list of samples; None accepts any value."""

    differing: bool = False
    """Only samples on which the two graders disagree."""
    wrong: bool = False
    """Only samples with a wrong answer (`correct` is false); failed samples have no verdict."""
    state: str | None = None
    correct: bool | None = None
    subject: str | None = None
    level: str | None = None
    text: str | None = None
    """Text in the question or the answer, ignoring case."""
    ending: Ending | None = None
    scored_by: Strategy | None = None
    """What scored the documents."""
    moved: bool | None = None
    """Whether reranking changed the prompt."""

    @property
    def asked(self) -> dict[str, object]:
        """The filters that are set."""
        fields = ((field, getattr(self, field.name)) for field in msgspec.structs.fields(self))
        return {field.name: value for field, value in fields if value != field.default}

    @property
    def reads_outcomes(self) -> bool:
        """Whether a filter needs the outcomes, so that SQL alone cannot decide."""
        return self.ending is not None or self.scored_by is not None or self.moved is not None

    def values(self) -> dict[str, object]:
        """Return the statement's parameters."""
        values = {name: value for name, value in self.asked.items() if f":{name}" in CONDITIONS.get(name, "")}
        if self.state is not None:
            values["state"] = SampleState[self.state.upper()].value
        if self.text is not None:
            values["text"] = f"%{_escape_like(self.text)}%"
        return values

    def has(self, outcome: Outcome | None) -> bool:
        """Tell whether a sample with this outcome passes the filters that SQL and endings do not decide."""
        if self.scored_by is not None and (
            outcome is None or candidates.find_scorer(outcome.trace) is not self.scored_by
        ):
            return False
        return self.moved is None or (outcome is not None and candidates.is_context_reranked(outcome) is self.moved)


EVERY = SampleSelection()


def build_statement(only: SampleSelection, *, ended: bool = False) -> TextClause:
    """Build the statement of a page; with `ended`, only of completed, failed and cancelled samples."""
    conditions = [CONDITIONS[name] for name in only.asked if name in CONDITIONS]
    if only.ending is not None:
        conditions.append(OF_ENDINGS.get(only.ending, WRONG))
    if only.scored_by is not None:
        conditions.append(OF_SCORERS[only.scored_by])
    return _compile_statement((*conditions, ENDED) if ended else tuple(conditions))


@cache
def _compile_statement(conditions: tuple[str, ...]) -> TextClause:
    return sql(PAGE.format(found=" AND ".join((FOUND, *conditions))))


def _escape_like(text: str) -> str:
    """Escape the wildcards of LIKE in `text`."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
