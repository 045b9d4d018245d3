"""Records and their chain, computed without a database."""

import hashlib
import json
from datetime import UTC, datetime

import msgspec
import pytest

from shared import canonical
from shared.records import CallRecord, JobRecord, NamedContent, SampleRecord, chain_records, genesis
from shared.runtime.submit import DECIDING, configuration_hash
from shared.settings import Device, Model, Settings, TokenPrice

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def sample(index: int) -> SampleRecord:
    call = CallRecord((), 0, 0, True, "k" * 64, NOON, "value", "r" * 64, "judge@host:1")
    return SampleRecord(index=index, repeat=0, item="i" * 64, state="completed", ended_at=NOON, calls=(call,))


def job(**fields: object) -> JobRecord:
    given = {
        "job": "6b0c", "pipeline": "hybrid", "pipeline_hash": "p" * 64, "params": msgspec.Raw(b"{}"),
        "dataset": NamedContent(name="d", hash="h"),
        "corpus": None, "pins": {}, "repeats": 1, "reuse": "all", "total": 2,
        "code": {}, "prepared": None, "preparation": None, "created_at": NOON, **fields,
    }  # fmt: skip
    return JobRecord(**given)  # type: ignore[arg-type]


def test_a_link_is_the_hash_before_and_the_record() -> None:
    head = genesis(job())
    first, second = chain_records([sample(0), sample(1)], 0, head)
    assert first.hash == hashlib.sha256(head + first.record).digest()
    assert second.hash == hashlib.sha256(first.hash + second.record).digest()
    assert (first.previous, second.previous) == (head, first.hash)
    assert (first.sequence, second.sequence) == (0, 1)


def test_a_chain_goes_on_where_it_was_left() -> None:
    whole = list(chain_records([sample(0), sample(1), sample(2)], 0, b"head"))
    assert list(chain_records([sample(1), sample(2)], 1, whole[0].hash)) == whole[1:]


def test_a_record_leaves_out_what_did_not_happen() -> None:
    asked = CallRecord((), 1, 0, False, "k" * 64, NOON)
    record = SampleRecord(index=0, repeat=0, item="i", state="cancelled", ended_at=NOON, calls=(asked,))
    (call,) = json.loads(canonical.encode(record))["calls"]
    assert call.keys() == {"interruptions", "position", "slot", "created", "key", "queued_at"}


@pytest.mark.parametrize(
    "change", [{"params": msgspec.Raw(b'{"seed":1}')}, {"code": {"commit": "x"}}, {"prepared": "y"}, {"total": 3}]
)
def test_what_was_asked_decides_where_a_chain_begins(change: dict[str, object]) -> None:
    assert genesis(job(**change)) != genesis(job())


def test_the_configurations_hash_knows_no_secret_and_no_address() -> None:
    plain = Settings(database_url="postgresql+asyncpg://a:secret@one/x", redis_url="redis://:secret@one", port=1)
    other = Settings(database_url="postgresql+asyncpg://a:other@two/x", redis_url="redis://:other@two", port=2)
    assert configuration_hash(plain) == configuration_hash(other)
    assert configuration_hash(plain) != configuration_hash(Settings(device=Device(budget_mib=1)))
    priced = Model(driver="scripted", price=TokenPrice(prompt=1, completion=2))
    assert configuration_hash(Settings(models={"a": priced})) == configuration_hash(
        Settings(models={"a": Model(driver="scripted")})
    )
    assert Settings.model_fields.keys() >= DECIDING
