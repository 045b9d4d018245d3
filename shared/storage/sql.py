"""SQL templates with shared names: `{WAITING}` is a state, `{ACCEPTED_FOR}` a condition that many statements share.

Names are filled in at import, so a misspelt name fails there and no input of a request becomes part of a statement.
Double the braces that SQL itself needs: `'{{}}'`.
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
    # For jobs of imported answers: whether the item has an answer, and the answer of the sample.
    "GIVEN_FOR_ITEM": "j.pipeline <> 'imported' OR EXISTS (SELECT 1 FROM given g"
    " WHERE g.job = j.public_id AND g.ordinal = i.ordinal AND g.repeat = r)",
    "GIVEN_TO_SAMPLE": "g.job = j.public_id AND g.ordinal = s.ordinal AND g.repeat = s.repeat"
    " AND s.kind = 'item' AND j.pipeline IN ('imported', 'conversation', 'embedding')",
    "AWAITED_BY_SAMPLE": "t.sample_id = s.id AND t.position = s.position - 1",
    "WAITS_FOR_STEP": f"s.id = t.sample_id AND s.state = {SampleState.WAITING} AND s.position = t.position + 1",
    # Where a call stands in the queue: smaller ranks first, then smaller turns (`shared.runtime.admission`).
    "PLACE": "(CAST(j.rank AS bigint) << 40)"
    " + COALESCE(CAST(j.code ->> 'turn' AS bigint), 0) + s.repeat * (j.total / j.repeats) + s.ordinal",
    # A job keeps the plug-ins that its replays need: whoever has imported others must not go on with it.
    "HAS_PLUGINS": "(j.code -> 'plugins' IS NULL OR j.code -> 'plugins' <@ CAST(:plugins AS jsonb))",
    # The number of each load of a call's model in its residency, from 0: a server that others share may load it again.
    "LOADS_OF_MODEL": "LATERAL generate_series(0, COALESCE(CAST("
    "r.measured -> 'reloads' ->> CAST(c.model_id AS text) AS integer), 0)) AS loading(n)",
    "CALLS_OF_JOB": "SELECT DISTINCT t.call_id FROM samples s JOIN steps t ON t.sample_id = s.id WHERE s.job_id = :job",
}
"""SQL by name. The call's id follows `ACCEPTED_FOR`: `JOIN attempts a ON {ACCEPTED_FOR} c.id`."""


def fill_names(template: str) -> str:
    """Fill the names into a part that several statements of a module share."""
    return template.format(**NAMES)


def sql(template: str) -> TextClause:
    """Fill in the names and return a statement."""
    return text(fill_names(template))
