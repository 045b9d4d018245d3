"""The audit finds what breaks an invariant: each test plants one violation in a job that is completed."""

import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import TypeVar

import msgspec
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from shared import canonical
from shared.audit import check
from shared.replies import Rated
from shared.samples import GateDecision
from shared.storage.database import Database
from tests.integration.conftest import Plant
from tests.integration.scene import Uncommitted, rows, scalar
from tests.integration.test_audit import AN_ITEM, completed, found, the_job

pytestmark = pytest.mark.anyio

T = TypeVar("T")

JUDGED = "SELECT min(a.id) FROM attempts a JOIN calls c ON c.id = a.call_id WHERE c.role = 'judge'"
SEARCHED = "SELECT min(a.id) FROM attempts a JOIN calls c ON c.id = a.call_id WHERE c.role = 'retrieve'"
FIRST, LAST = "SELECT min(epoch) FROM residencies", "SELECT max(epoch) FROM residencies"
GENERATED = "SELECT min(a.id) FROM attempts a JOIN calls c ON c.id = a.call_id WHERE c.role = 'generate'"


@pytest.fixture(scope="module")
async def job(emptied: None, connections: Database) -> uuid.UUID:
    return await completed(connections)


@pytest.fixture
async def database(owner_engine: AsyncEngine, job: uuid.UUID) -> AsyncIterator[Uncommitted]:
    """The rows of the one job as the transaction sees them in which a test changes them; it is rolled back."""
    async with owner_engine.connect() as connection:
        yield Uncommitted(connection)


@pytest.fixture
def plant(database: Uncommitted) -> Plant:
    return database.plant


async def the_events(database: Database) -> str:
    return (await the_job(database)).replace("jobs", "job_events")


async def stored(database: Database, type_: type[T], sql: str, **values: object) -> T:
    raw = await scalar(database, sql, **values)
    assert isinstance(raw, bytes)
    return msgspec.json.decode(raw, type=type_)


async def _opened(plant: Plant, database: Database, like: object, cause: str) -> object:
    await plant(
        "INSERT INTO residencies (device, previous_epoch, models, cause, state, reason, opened_at, closed_at)"
        " SELECT device, (SELECT max(epoch) FROM residencies), models, :cause, 'closed', 'guard_stopped',"
        " (SELECT max(closed_at) FROM residencies), clock_timestamp() FROM residencies WHERE epoch = :like",
        cause=cause,
        like=like,
    )
    return await scalar(database, LAST)


async def _executed_in(plant: Plant, attempt: object, epoch: object) -> None:
    await plant(
        "UPDATE attempts SET (epoch, started_at, ended_at) ="
        " (SELECT epoch, opened_at, opened_at FROM residencies WHERE epoch = :e) WHERE id = :a",
        e=epoch,
        a=attempt,
    )


async def test_i1_residencies_that_overlap(database: Database, job: uuid.UUID, plant: Plant) -> None:
    first, last = await scalar(database, FIRST), await scalar(database, LAST)
    await plant("UPDATE residencies SET opened_at = opened_at - interval '1 s' WHERE epoch = :e", e=last)
    assert await found(database, job) == ({"I1"}, {f"residencies {first}", f"residencies {last}"})


async def test_i1_epochs_that_shrink(database: Database, job: uuid.UUID, plant: Plant) -> None:
    await plant(
        "INSERT INTO residencies (epoch, device, previous_epoch, models, cause, state, opened_at)"
        " VALUES (-1, 'cpu:0', -2, '{}', 'drained', 'open', now() + interval '1 h')"
    )
    assert await found(database, job) == ({"I1"}, {"residencies -1"})


async def test_i1_a_residency_that_closed_before_it_opened(database: Database, job: uuid.UUID, plant: Plant) -> None:
    await plant(
        "INSERT INTO residencies (device, previous_epoch, models, cause, state, opened_at, closed_at)"
        " VALUES ('cpu:0', -1, '{}', 'drained', 'closed', now() + interval '1 h', now())"
    )
    last = await scalar(database, LAST)
    assert await found(database, job) == ({"I1"}, {f"residencies {last}"})


@pytest.mark.parametrize(
    "change",
    [
        "ended_at = ended_at + interval '1 h'",
        "started_at = started_at - interval '1 h'",
        "device = 'cpu:1'",
        "epoch = -1",
    ],
)
async def test_i2_a_call_outside_its_epoch(database: Database, job: uuid.UUID, plant: Plant, change: str) -> None:
    attempt = await scalar(database, JUDGED)
    await plant("UPDATE attempts SET _ WHERE id = :a".replace("_", change, 1), a=attempt)
    assert await found(database, job) == ({"I2"}, {f"attempts {attempt}"})


async def test_i2_a_call_of_a_model_that_was_not_resident(database: Database, job: uuid.UUID, plant: Plant) -> None:
    last = await scalar(database, LAST)
    await plant("UPDATE residencies SET models = '{}' WHERE epoch = :e", e=last)
    attempts = await rows(database, "SELECT id FROM attempts WHERE epoch = :e", e=last)
    assert await found(database, job) == ({"I2"}, {f"attempts {id_}" for (id_,) in attempts})


async def test_i2_an_epoch_without_a_lease(database: Database, job: uuid.UUID, plant: Plant) -> None:
    attempt = await scalar(database, SEARCHED)
    await plant("UPDATE attempts SET epoch = -1 WHERE id = :a", a=attempt)
    assert await found(database, job) == ({"I2"}, {f"attempts {attempt}"})


@pytest.mark.parametrize("change", ["token = NULL", "epoch = NULL", "outcome = 'refused'"])
async def test_i5_a_reply_accepted_without_claim_receipt_or_truth(
    database: Database, job: uuid.UUID, plant: Plant, change: str
) -> None:
    attempt = await scalar(database, JUDGED)
    await plant("UPDATE attempts SET _ WHERE id = :a".replace("_", change, 1), a=attempt)
    assert await found(database, job) == ({"I5"}, {f"attempts {attempt}"})


@pytest.mark.parametrize("reply", ["{", '{"type":"generated","text":"five stars"}'])
async def test_i5_a_reply_of_another_kind(database: Database, job: uuid.UUID, plant: Plant, reply: str) -> None:
    attempt = await scalar(database, JUDGED)
    await plant("UPDATE attempts SET reply = convert_to(:r, 'UTF8') WHERE id = :a", r=reply, a=attempt)
    violations = await check(database, job)
    assert {each.rows for each in violations if each.invariant == "I5"} == {(f"attempts {attempt}",)}
    assert {each.invariant for each in violations} == {"I5", "I18", "I22"}


@pytest.mark.parametrize(("peak", "broken"), [(3000, False), (3001, True)])
async def test_i8_a_residency_that_held_more_than_its_budget(
    database: Database, job: uuid.UUID, plant: Plant, peak: int, broken: bool
) -> None:
    epoch = await scalar(database, LAST)
    figures = f'{{"budget_mib": 3000, "peak_mib": {peak}}}'
    await plant("UPDATE residencies SET measured = CAST(:m AS jsonb) WHERE epoch = :e", m=figures, e=epoch)
    assert await found(database, job) == (({"I8"}, {f"residencies {epoch}"}) if broken else (set(), set()))


@pytest.mark.parametrize(("cause", "broken"), [("drained", {"I9"}), ("guard_restart", set())])
async def test_i9_a_load_too_many(
    database: Database, job: uuid.UUID, plant: Plant, cause: str, broken: set[str]
) -> None:
    back = await _opened(plant, database, await scalar(database, FIRST), cause)
    await _executed_in(plant, await scalar(database, JUDGED), back)
    epochs = await rows(database, "SELECT epoch FROM residencies")
    assert await found(database, job) == (broken, {f"residencies {epoch}" for (epoch,) in epochs if broken})


async def test_i9_an_interruption_that_never_opened_costs_the_way_back(
    database: Database, job: uuid.UUID, plant: Plant
) -> None:
    first, last = await scalar(database, FIRST), await scalar(database, LAST)
    for like, cause, opens in ((first, "cpu_stalled", False), (first, "retry", True), (last, "drained", True)):
        epoch = await _opened(plant, database, like, cause)
        if opens:
            await _executed_in(plant, await scalar(database, JUDGED if like == first else GENERATED), epoch)
        else:
            await plant("UPDATE residencies SET opened_at = NULL, state = 'quarantined' WHERE epoch = :e", e=epoch)
    assert await found(database, job) == (set(), set())


@pytest.mark.parametrize(("cause", "broken"), [("drained", True), ("guard_restart", False)])
async def test_i9_an_interruption_loads_again_what_was_held_together(
    database: Database, job: uuid.UUID, plant: Plant, cause: str, broken: bool
) -> None:
    first, last = await scalar(database, FIRST), await scalar(database, LAST)
    await plant(
        "UPDATE residencies SET models = (SELECT array_agg(DISTINCT m ORDER BY m) FROM residencies, unnest(models) m),"
        " closed_at = (SELECT max(closed_at) FROM residencies), reason = 'server_exit' WHERE epoch = :e",
        e=first,
    )
    await plant("UPDATE attempts SET epoch = :first WHERE epoch = :last", first=first, last=last)
    await plant("DELETE FROM residencies WHERE epoch = :e", e=last)
    back = await _opened(plant, database, first, cause)
    for attempt in (JUDGED, GENERATED):
        await _executed_in(plant, await scalar(database, attempt), back)
    expected = ({"I9"}, {f"residencies {first}", f"residencies {back}"}) if broken else (set(), set())
    assert await found(database, job) == expected


async def test_i9_a_load_that_another_job_cost(database: Database, job: uuid.UUID, plant: Plant) -> None:
    first, last = await scalar(database, FIRST), await scalar(database, LAST)
    await _opened(plant, database, last, "drained")
    back = await _opened(plant, database, first, "drained")
    await _executed_in(plant, await scalar(database, JUDGED), back)
    assert await found(database, job) == (set(), set())


async def test_i9_a_preparation_whose_calls_other_jobs_made_loads_nothing(
    database: Database, job: uuid.UUID, plant: Plant
) -> None:
    back = await _opened(plant, database, await scalar(database, LAST), "drained")
    await _executed_in(plant, await scalar(database, GENERATED), back)
    assert "I9" in (await found(database, job))[0]
    await plant(
        "UPDATE steps t SET created = false FROM samples s, calls c WHERE s.id = t.sample_id AND c.id = t.call_id"
        " AND c.role = 'judge' AND (s.kind = 'prepare' OR s.id = (SELECT min(id) FROM samples WHERE kind = 'item'))"
    )
    assert "I9" not in (await found(database, job))[0]


async def test_i9_each_device_has_a_bound_of_its_own(database: Database, job: uuid.UUID, plant: Plant) -> None:
    first, last = await scalar(database, FIRST), await scalar(database, LAST)
    await plant("UPDATE residencies SET reason = 'guard_stopped'")  # nobody's successor is on the same device now
    await plant("UPDATE residencies SET device = 'cpu:1' WHERE epoch = :e", e=last)
    await plant("UPDATE attempts SET device = 'cpu:1' WHERE epoch = :e", e=last)
    await plant("UPDATE models SET device = 'cpu:1' WHERE name = 'a-generator'")
    assert await found(database, job) == (set(), set())
    back = await _opened(plant, database, first, "drained")
    await _executed_in(plant, await scalar(database, JUDGED), back)
    assert await found(database, job) == ({"I9"}, {f"residencies {first}", f"residencies {back}"})


@pytest.mark.parametrize(("which", "change"), [(FIRST, "cause = ''"), (LAST, "reason = NULL")])
async def test_i10_a_residency_without_cause_or_reason(
    database: Database, job: uuid.UUID, plant: Plant, which: str, change: str
) -> None:
    epoch = await scalar(database, which)
    await plant("UPDATE residencies SET _ WHERE epoch = :e".replace("_", change, 1), e=epoch)
    assert await found(database, job) == ({"I10"}, {f"residencies {epoch}"})


async def test_i13_a_completed_sample_without_an_outcome(database: Database, job: uuid.UUID, plant: Plant) -> None:
    sample = await scalar(database, AN_ITEM)
    await plant("DELETE FROM outcomes WHERE sample_id = :s", s=sample)
    assert await found(database, job) == ({"I13"}, {f"samples {sample}"})


async def test_i13_a_live_sample_in_a_completed_job(database: Database, job: uuid.UUID, plant: Plant) -> None:
    sample = await scalar(database, AN_ITEM)
    await plant("DELETE FROM outcomes WHERE sample_id = :s", s=sample)
    await plant("UPDATE samples SET state = 1, ended_at = NULL WHERE id = :s", s=sample)
    assert await found(database, job) == (
        {"I13"},
        {f"samples {sample}", await the_job(database)},
    )


@pytest.mark.parametrize(("outcome", "ago"), [("lapsed", timedelta()), ("value", timedelta(hours=1))])
async def test_i14_a_call_executed_again(
    database: Database, job: uuid.UUID, plant: Plant, outcome: str, ago: timedelta
) -> None:
    await plant(
        "INSERT INTO attempts (call_id, accepted, outcome, reply, created_at)"
        " SELECT call_id, false, :o, reply, now() - CAST(:ago AS interval) FROM attempts WHERE id = :a",
        o=outcome,
        ago=ago,
        a=await scalar(database, JUDGED),
    )
    attempt = await scalar(database, "SELECT id FROM attempts WHERE NOT accepted")
    assert await found(database, job) == ({"I14"}, {f"attempts {attempt}"})


async def test_i14_a_key_that_was_freed_for_another_call(database: Database, job: uuid.UUID, plant: Plant) -> None:
    call = await scalar(database, "SELECT min(id) FROM calls")
    await plant("UPDATE calls SET failed = true WHERE id = :c", c=call)
    assert await found(database, job) == ({"I14"}, {f"calls {call}"})


async def test_i17_an_end_without_a_time(database: Database, job: uuid.UUID, plant: Plant) -> None:
    await plant("UPDATE jobs SET ended_at = NULL")
    assert await found(database, job) == ({"I17", "I21"}, {await the_job(database)})


@pytest.mark.parametrize("time", ["now() + interval '1 h'", "NULL"])
async def test_i17_a_sample_that_changed_after_its_job(
    database: Database, job: uuid.UUID, plant: Plant, time: str
) -> None:
    sample = await scalar(database, AN_ITEM)
    await plant("UPDATE samples SET ended_at = _ WHERE id = :s".replace("_ W", f"{time} W", 1), s=sample)
    assert await found(database, job) == ({"I17"}, {f"samples {sample}"})


async def test_i18_a_gate_decision_that_does_not_follow(database: Database, job: uuid.UUID, plant: Plant) -> None:
    decision = await stored(database, GateDecision, "SELECT prepared FROM jobs")
    await plant("UPDATE jobs SET prepared = :p", p=canonical.encode(msgspec.structs.replace(decision, tau=0.1)))
    assert await found(database, job) == ({"I18", "I21"}, {await the_job(database)})


async def test_i18_a_judgement_that_was_changed(database: Database, job: uuid.UUID, plant: Plant) -> None:
    attempt = await scalar(database, JUDGED)
    reply = await stored(database, Rated, "SELECT reply FROM attempts WHERE id = :a", a=attempt)
    changed = Rated(rating=reply.rating % 5 + 1, text=reply.text)
    await plant("UPDATE attempts SET reply = :r WHERE id = :a", r=canonical.encode(changed), a=attempt)
    samples = await rows(database, "SELECT DISTINCT sample_id FROM steps t JOIN attempts a ON a.call_id = t.call_id"
                         " WHERE a.id = :a", a=attempt)  # fmt: skip
    assert await found(database, job) == ({"I18"}, {f"samples {id_}" for (id_,) in samples})


async def test_i18_a_document_whose_text_was_changed(database: Database, job: uuid.UUID, plant: Plant) -> None:
    decision = await stored(database, GateDecision, "SELECT prepared FROM jobs")
    await plant("UPDATE documents SET body = 'nothing' WHERE hash = decode(:h, 'hex')", h=decision.documents[0])
    names, named = await found(database, job)
    prepare = await scalar(database, "SELECT id FROM samples WHERE kind = 'prepare'")
    assert names == {"I18"}
    assert named >= {f"documents {decision.documents[0]}", f"samples {prepare}"}


async def test_i18_a_document_that_is_gone(database: Database, job: uuid.UUID, plant: Plant) -> None:
    await plant("DELETE FROM documents")
    names, named = await found(database, job)
    prepare = await scalar(database, "SELECT id FROM samples WHERE kind = 'prepare'")
    assert names == {"I18"}
    assert f"samples {prepare}" in named


@pytest.mark.parametrize("change", ["outcome = 'null'", "answer = '42'", "correct = NOT correct", "record_hash = 'x'"])
async def test_i18_an_outcome_that_does_not_follow(
    database: Database, job: uuid.UUID, plant: Plant, change: str
) -> None:
    sample = await scalar(database, AN_ITEM)
    await plant("UPDATE outcomes SET _ WHERE sample_id = :s".replace("_", change, 1), s=sample)
    assert await found(database, job) == ({"I18"}, {f"samples {sample}"})


async def test_i18_a_request_that_is_not_its_key(database: Database, job: uuid.UUID, plant: Plant) -> None:
    call = await scalar(database, "SELECT min(id) FROM calls")
    await plant("UPDATE calls SET request = 'x' WHERE id = :c", c=call)
    assert await found(database, job) == ({"I18"}, {f"calls {call}"})


async def test_a_violation_about_the_job_alone_names_no_item(database: Database, job: uuid.UUID, plant: Plant) -> None:
    await plant("UPDATE jobs SET total = total + 1")
    assert {each.items for each in await check(database, job) if each.invariant == "I12"} == {()}


async def test_i21_a_change_without_its_event(database: Database, job: uuid.UUID, plant: Plant) -> None:
    await plant("DELETE FROM job_events WHERE version = 2")
    assert await found(database, job, records=True) == ({"I21"}, {await the_job(database)})


@pytest.mark.parametrize(
    ("change", "version"),
    [("state = 'running' WHERE version = 4", 4), ("at = at - interval '1 h' WHERE version = 3", 3)],
)
async def test_i21_an_event_that_does_not_fit(
    database: Database, job: uuid.UUID, plant: Plant, change: str, version: int
) -> None:
    await plant("UPDATE job_events SET #".replace("#", change))
    assert await found(database, job, records=True) == ({"I21"}, {f"{await the_events(database)}/{version}"})


async def test_i21_a_life_after_the_end(database: Database, job: uuid.UUID, plant: Plant) -> None:
    await plant("UPDATE job_events SET state = 'failed' WHERE version = 2")
    names, named = await found(database, job, records=True)
    assert names == {"I21"}
    assert named == {f"{await the_events(database)}/{version}" for version in (3, 4)} | {await the_job(database)}


async def test_i22_a_sample_without_its_record(database: Database, job: uuid.UUID, plant: Plant) -> None:
    await plant("DELETE FROM records WHERE seq = 3")
    missing, after = (
        await scalar(database, AN_ITEM.replace("min(id)", "min(id) + 3")),
        await scalar(database, AN_ITEM.replace("min(id)", "min(id) + 4")),
    )
    assert await found(database, job, records=True) == ({"I22"}, {f"samples {missing}", f"samples {after}"})
