"""Submit: what cannot run is refused at once, and the message names the field."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from services.orchestrator.api.jobs import JobRequest
from shared.calls import Generate
from shared.errors import Invalid, MathragError, NotFound, Unavailable
from shared.params import Params
from shared.rag.provenance import make_outcome
from shared.replies import require
from shared.runtime.pins import ModelIdentity, register
from shared.runtime.submit import INSERTED, copy_submission, submit
from shared.samples import Library, Pipeline, Sample, Steps
from shared.storage.database import Database
from shared.storage.jobs import JOB_COLUMNS, JOB_FIELDS, get
from tests.integration.scene import (
    SETTINGS,
    furnish,
    install,
    job_states,
    rows,
    run_sql,
    scalar,
    submit_job,
    two_questions,
)

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"dataset": "no-such-dataset"}, NotFound, "no dataset 'no-such-dataset'"),
        ({"corpus": "no-such-corpus"}, NotFound, "no corpus 'no-such-corpus'"),
        ({"pipeline": "no-such-pipeline"}, Invalid, "`pipeline`.*no-such-pipeline.*closed-book"),
        ({"models": {"judge": "no-such-model"}}, Invalid, "`models.judge`.*no-such-model"),
        ({"models": {"no-such-role": "a-judge"}}, Invalid, "`models`.*no-such-role.*generate, judge"),
        ({"pipeline": "hybrid", "corpus": None}, Invalid, "`corpus`.*hybrid.*needs one"),
        ({"pipeline": "dense", "corpus": None}, Invalid, "`corpus`.*dense.*needs one"),
        ({"pipeline": "mathrag-gate", "corpus": None}, Invalid, "`corpus`.*mathrag-gate.*needs one"),
        ({"params": {"anchors": {"no_such_slot": "?"}}}, Invalid, "`params`.*reasoning-quality.*no_such_slot"),
    ],
)
async def test_what_does_not_exist_is_refused_by_name(
    database: Database, fields: dict[str, Any], error: type[MathragError], said: str
) -> None:
    await furnish(database, items=1)
    with pytest.raises(error, match=said):
        await submit_job(database, **{"pipeline": "mathrag-gate", **fields})
    assert await job_states(database) == []
    assert await scalar(database, "SELECT count(*) FROM samples") == 0


@pytest.mark.parametrize("params", [{"no_such_param": 1}, {"gate": {"no_such_param": 1}}, {"candidates": "ten"}])
async def test_unknown_parameters_and_wrong_types_are_refused(database: Database, params: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        await submit_job(database, params=params)


async def test_an_empty_dataset_is_refused(database: Database) -> None:
    await furnish(database, items=0)
    with pytest.raises(Invalid, match="`dataset`: 'items' has no items"):
        await submit_job(database)


async def test_a_corpus_without_ready_indexes_is_refused(database: Database) -> None:
    await furnish(database, items=1)
    await run_sql(database, "UPDATE indexes SET state = 'building' WHERE kind = 'dense'")
    with pytest.raises(Unavailable, match="the indexes of corpus 'docs' are not ready") as raised:
        await submit_job(database)
    assert "wait" in str(raised.value.hint)


async def test_a_pipeline_without_retrieval_needs_no_corpus(database: Database) -> None:
    await furnish(database, items=2)
    await submit_job(database, "closed-book", corpus=None)
    assert await rows(database, "SELECT state, corpus_id, total FROM jobs") == [("running", None, 2)]


async def test_a_pipeline_without_calibration_runs_at_once(database: Database) -> None:
    await furnish(database, items=3)
    await submit_job(database, "hybrid", repeats=2)
    assert await rows(database, "SELECT state, total, repeats FROM jobs") == [("running", 6, 2)]
    found = await rows(database, "SELECT kind, ordinal, repeat, state, position FROM samples ORDER BY repeat, ordinal")
    assert found == [("item", ordinal, repeat, 0, 0) for repeat in (0, 1) for ordinal in (0, 1, 2)]


async def test_a_pipeline_with_a_calibration_starts_with_that_alone(database: Database) -> None:
    await furnish(database, items=3)
    await submit_job(database, "mathrag-gate")
    assert await job_states(database) == ["preparing"]
    assert await rows(database, "SELECT kind, state FROM samples") == [("prepare", 0)]


async def test_a_job_keeps_the_models_it_was_submitted_with(database: Database) -> None:
    await furnish(database, items=1)
    await submit_job(database, "closed-book")
    async with database.transaction() as connection:
        newer = await register(connection, ModelIdentity(name="a-generator", backend="scripted", digest="newer"))
    await submit_job(database, "closed-book")
    pinned = await rows(database, "SELECT (pins -> 'generate' ->> 'model_id')::int FROM jobs ORDER BY id")
    assert pinned[1] == (newer,)
    assert pinned[0] != pinned[1]


async def test_registering_the_same_model_again_is_the_same_row(database: Database) -> None:
    same = ModelIdentity(name="m", backend="scripted", digest="d", options={"context": 512})
    async with database.transaction() as connection:
        first = await register(connection, same)
        moved = await register(connection, msgspec.structs.replace(same, device="cuda:0", footprint_mib=7))
        other = await register(connection, msgspec.structs.replace(same, options={"context": 1024}))
    assert first == moved != other
    assert await scalar(database, "SELECT device FROM models WHERE id = :i", i=first) == "cuda:0"


async def test_a_model_named_by_the_job_replaces_the_operators_default(database: Database) -> None:
    await furnish(database, items=1)
    await submit_job(database, "closed-book", models={"generate": "a-judge"})
    generate, judge = await scalar(database, "SELECT ARRAY[pins -> 'generate', pins -> 'judge']::text[] FROM jobs")  # type: ignore[misc]
    assert msgspec.json.decode(generate) == msgspec.json.decode(judge)


async def test_what_a_job_is_fixed_by_is_stored_with_it(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "two-questions", two_questions)
    await furnish(database, items=1)
    await submit_job(database, "two-questions", params={"candidates": 7}, rank=3, reuse="none")
    [(params, pipeline_hash, rank, reuse)] = await rows(
        database, "SELECT convert_from(params, 'UTF8')::jsonb, pipeline_hash, rank, reuse FROM jobs"
    )
    stored = params if isinstance(params, dict) else msgspec.json.decode(str(params))
    assert (stored["candidates"], stored["rrf_k"], stored["gate"]["tau"]) == (7, 60, 0.45)
    assert len(bytes(pipeline_hash)) == 32  # type: ignore[call-overload]
    assert (rank, reuse) == (3, "none")


async def test_a_new_job_is_inserted_with_columns_that_the_table_has(database: Database) -> None:
    found = await rows(
        database,
        "SELECT column_name, data_type, is_nullable = 'NO' AND column_default IS NULL AND is_identity = 'NO'"
        " FROM information_schema.columns WHERE table_name = 'jobs' AND table_schema = 'public'",
    )
    types = {str(name): str(kind).replace("smallint", "integer") for name, kind, _ in found}
    # The id of another job goes in as its public id.
    assert INSERTED.items() - types.items() == {("requeued_from", "uuid")}
    assert {name for name, _, is_needed in found if is_needed} - INSERTED.keys() == {"state"}


async def test_what_a_request_says_of_a_job_is_stored_shown_and_requested_again(database: Database) -> None:
    await furnish(database, items=3)
    asked = {
        "name": "a-job", "dataset": "items", "corpus": "docs", "pipeline": "dense", "limit": 2, "repeats": 3,
        "reuse": "none", "rank": 7, "metadata": {"run": "1"},
    }  # fmt: skip
    values = {"text": "words", "integer": 1, "boolean": True, "double precision": 0.5}
    asked |= {name: values[kind] for name, kind in JOB_COLUMNS.items() if name not in asked}
    job = await submit(database, SETTINGS, JobRequest(**asked).submission())
    shown, copy = await get(database, "a-job"), await copy_submission(database, job)
    assert {name: getattr(shown, name) for name in JOB_FIELDS} == asked
    assert {name: getattr(copy, name) for name in JOB_FIELDS} == {**asked, "name": "a-job-r2"}


async def test_a_pipeline_whose_sampled_calls_are_equal_is_refused_in_words(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asking(*steps: Sequence[int]) -> Pipeline:
        def run(sample: Sample, _params: Params, _library: Library) -> Steps:
            for draws in steps:
                generated = yield [Generate(template="cot", question=sample.question, draw=draw) for draw in draws]
            return make_outcome(require(generated[0]))

        return run

    install(monkeypatch, "equal", asking((0, 0, 0)))
    install(monkeypatch, "again", asking((0,), (0,)))
    install(monkeypatch, "drawn", asking((0, 1), (2,)))
    await furnish(database, items=1)
    sampled = {"generate": {"temperature": 0.8}}
    for name in ("equal", "again"):
        with pytest.raises(Invalid, match=rf"`pipeline`: '{name}': .*same sampled 'generate' call twice.*own `draw`"):
            await submit_job(database, name, params=sampled)
        await submit_job(database, name)
    await submit_job(database, "drawn", params=sampled)
    with pytest.raises(Invalid, match=r"`params`: draw 1 of a greedy generation"):
        await submit_job(database, "drawn")
