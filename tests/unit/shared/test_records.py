"""Canonical bytes: the same value has the same bytes, and different values have different ones."""

import hashlib

import msgspec
import pytest

from shared import canonical
from shared.calls import Decoding
from shared.replies import Document
from shared.samples import Item


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
