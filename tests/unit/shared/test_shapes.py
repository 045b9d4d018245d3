"""API keys: how they look, what is kept, what they allow."""

from datetime import timedelta

import pytest

from shared import shapes
from shared.errors import Invalid
from shared.shapes import Scope


def test_a_key_is_256_random_bits_behind_a_public_prefix() -> None:
    first, second = shapes.issue_key(), shapes.issue_key()
    assert first.key != second.key
    assert first.prefix != second.prefix
    assert len(bytes.fromhex(first.key.rsplit("_", 1)[1])) == 32
    assert shapes.prefix_of(first.key) == first.prefix


def test_what_is_kept_recognises_the_key_and_does_not_hold_it() -> None:
    issued = shapes.issue_key()
    assert shapes.matches_digest(issued.key, issued.digest)
    assert not shapes.matches_digest(shapes.issue_key().key, issued.digest)
    assert issued.key.rsplit("_", 1)[1].encode() not in issued.digest


@pytest.mark.parametrize(
    "text",
    ["", "mrg_", "x" * 10_000, "mrg_0123abcd", f"mrg_0123abcd_{'0' * 63}", f"mrg_0123abcd_{'0' * 64}\n", "mrg_é_0"],
)
def test_what_is_no_key_of_ours_is_told_without_asking_anybody(text: str) -> None:
    assert shapes.prefix_of(text) is None


@pytest.mark.parametrize(
    ("held", "wanted", "allowed"),
    [
        ((Scope.READ,), Scope.READ, True),
        ((Scope.READ,), Scope.SUBMIT, False),
        ((Scope.SUBMIT,), Scope.READ, False),
        ((Scope.READ, Scope.SUBMIT), Scope.OPERATE, False),
        ((Scope.OPERATE,), Scope.READ, True),
        ((Scope.OPERATE,), Scope.SUBMIT, True),
        ((), Scope.READ, False),
    ],
)
def test_a_scope_allows_itself_and_operate_allows_all(held: tuple[Scope, ...], wanted: Scope, allowed: bool) -> None:
    assert shapes.allows(held, wanted) is allowed


@pytest.mark.parametrize(
    ("words", "meant"),
    [("90d", timedelta(days=90)), ("24h", timedelta(days=1)), ("30m", timedelta(minutes=30)), ("0m", timedelta(0))],
)
def test_a_duration_is_a_number_and_a_unit(words: str, meant: timedelta) -> None:
    assert shapes.parse_duration("`lifetime`", words) == meant


@pytest.mark.parametrize("words", ["", "90", "d", "1y", "-1d", "1.5h", "90d ", "1d2h", "1000000d"])
def test_what_is_no_duration_is_refused_by_the_field_s_name(words: str) -> None:
    with pytest.raises(Invalid, match=r"^`lifetime`: .* is not a duration") as refused:
        shapes.parse_duration("`lifetime`", words)
    assert "such as 90d" in str(refused.value.hint)
