"""Canonical bytes, and the chain of records that is made of them."""

import hashlib
import json
from datetime import UTC, datetime

import msgspec
import pytest

from shared import canonical
from shared.calls import Decoding
from shared.records import CallRecord, JobRecord, NamedContent, SampleRecord, chain_records, genesis
from shared.replies import Document
from shared.runtime.submit import DECIDING, configuration_hash
from shared.samples import Item
from shared.settings import Device, Model, Settings, TokenPrice

# Canonical bytes: the same value has the same bytes, and different values have different ones.


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_floats_that_json_has_no_word_for_are_refused_by_name(value: float) -> None:
    with pytest.raises(ValueError, match="`temperature` must be a finite number"):
        Decoding(temperature=value)
    with pytest.raises(ValueError, match="`field` must be a finite number"):
        canonical.require_finite(value, "field")


def test_finite_floats_pass() -> None:
    assert [canonical.require_finite(value, "field") for value in (0.0, -1.5, 1e308)] == [0.0, -1.5, 1e308]


def test_the_order_of_keys_does_not_matter() -> None:
    one = {"a": 1, "b": {"c": 2, "d": [3, {"e": 4, "f": 5}]}}
    other = {"b": {"d": [3, {"f": 5, "e": 4}], "c": 2}, "a": 1}
    assert canonical.encode(one) == canonical.encode(other) == b'{"a":1,"b":{"c":2,"d":[3,{"e":4,"f":5}]}}'


def test_the_order_of_lists_does() -> None:
    assert canonical.digest([1, 2]) != canonical.digest([2, 1])


def test_bytes_are_pinned() -> None:
    value = [0.1, 1.0, 1, 1e22, -0.0, None, True, 'é∑\\"\n']
    assert canonical.encode(value) == '[0.1,1.0,1,1e22,-0.0,null,true,"é∑\\\\\\"\\n"]'.encode()


def test_integers_and_floats_are_told_apart() -> None:
    assert canonical.digest(1) != canonical.digest(1.0)


def test_a_digest_is_the_sha256_of_the_bytes() -> None:
    assert canonical.digest({"a": [1]}) == hashlib.sha256(b'{"a":[1]}').digest()


def test_text_is_normalised_to_nfc_with_plain_line_ends_and_no_outer_blanks() -> None:
    assert canonical.normalise("e\u0301") == "\u00e9"
    assert canonical.normalise("a\r\nb\rc\nd") == "a\nb\nc\nd"
    assert canonical.normalise("  a b \n") == "a b"


def test_inner_blanks_and_compatibility_forms_are_kept() -> None:
    assert canonical.normalise("a  b") == "a  b"
    assert canonical.normalise("x\u00b2") == "x\u00b2"


def test_normalising_twice_changes_nothing() -> None:
    for text in ("e\u0301 \r\n", "\u212b", " \u1e9b\u0323 "):
        once = canonical.normalise(text)
        assert canonical.normalise(once) == once


def test_equal_texts_have_one_hash() -> None:
    assert Document(text="caf\u00e9\n").hash == Document(text="cafe\u0301\r\n").hash
    assert Document(text="a").hash != Document(text="b").hash


def test_a_lone_surrogate_is_an_error_and_not_a_hash() -> None:
    with pytest.raises(UnicodeEncodeError):
        Document(text="\ud800").hash  # noqa: B018 - computing it is the point


def test_documents_and_items_are_hashed_by_normalised_content() -> None:
    assert Document(problem="e\u0301", text="b").hash == Document(problem="\u00e9", text=" b\n").hash
    assert Document(problem="a", text="b").hash != Document(problem="", text="a b").hash
    assert Document(problem="a", text="b").hash != Document(problem="b", text="a").hash
    assert Item(ordinal=0, question="?").hash == Item(ordinal=7, question="?", custom_id="x").hash
    assert Item(ordinal=0, question="?").hash != Item(ordinal=0, question="?", gold="4").hash


def test_contracts_survive_a_round_trip() -> None:
    decoding = Decoding(temperature=0.30000000000000004, max_tokens=7)
    again = msgspec.json.decode(canonical.encode(decoding), type=Decoding)
    assert again == decoding
    assert canonical.encode(again) == canonical.encode(decoding)


# Records and their chain, computed without a database.

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
