"""SQL with names in it: `{WAITING}` is a state, `{ACCEPTED_FOR}` a condition that many statements share.

Names are filled in while a module loads: a misspelt one fails there, and nothing that a request brings becomes a part
of a statement. A brace that SQL itself needs is doubled: `'{{}}'`.
"""

from sqlalchemy import TextClause, text

from shared.storage.states import RUNNABLE, TERMINAL, SampleState

NAMES = {
    **{state.name: str(state.value) for state in SampleState},
    "LIVE": f"({SampleState.READY}, {SampleState.WAITING})",
    "DONE": f"({SampleState.COMPLETED}, {SampleState.FAILED})",
    "ENDED": f"({SampleState.COMPLETED}, {SampleState.FAILED}, {SampleState.CANCELLED})",
    "RUNNABLE": str(tuple(sorted(RUNNABLE))),
    "TERMINAL": str(tuple(sorted(TERMINAL))),
    "COUNTS_BY_END": ", ".join(
        f"count(*) FILTER (WHERE s.state = {state}) AS {state.word}"
        for state in (SampleState.COMPLETED, SampleState.FAILED, SampleState.CANCELLED)
    ),
    "ACCEPTED_FOR": "a.accepted AND a.call_id =",
    "ASKED_BY_SAMPLE": "i.dataset_id = j.dataset_id AND i.ordinal = s.ordinal",
    # Of a job of imported answers: the item's answers that it was given, and the sample's.
    "GIVEN_FOR_ITEM": "j.pipeline <> 'imported' OR EXISTS (SELECT 1 FROM given g"
    " WHERE g.job = j.public_id AND g.ordinal = i.ordinal AND g.repeat = r)",
    "GIVEN_TO_SAMPLE": "g.job = j.public_id AND g.ordinal = s.ordinal AND g.repeat = s.repeat"
    " AND s.kind = 'item' AND j.pipeline = 'imported'",
    "AWAITED_BY_SAMPLE": "t.sample_id = s.id AND t.position = s.position - 1",
    "WAITS_FOR_STEP": f"s.id = t.sample_id AND s.state = {SampleState.WAITING} AND s.position = t.position + 1",
    "CALLS_OF_JOB": "SELECT DISTINCT t.call_id FROM samples s JOIN steps t ON t.sample_id = s.id WHERE s.job_id = :job",
}
"""By name. The call's id stands behind `ACCEPTED_FOR`: `JOIN attempts a ON {ACCEPTED_FOR} c.id`."""


def fill(template: str) -> str:
    """The SQL with its names filled in: what several statements of a module share."""
    return template.format(**NAMES)


def sql(template: str) -> TextClause:
    """The same as a statement."""
    return text(fill(template))
