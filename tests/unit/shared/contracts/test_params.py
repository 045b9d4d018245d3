"""The range of each parameter of a job."""

from typing import Any

import msgspec
import pytest

from shared.params import RANGES, Params, out_of_range
from tests.unit.cases import named


def of(path: str, value: Any) -> Params:
    tree = value
    for name in reversed(path.split(".")):
        tree = {name: tree}
    return msgspec.convert(tree, Params)


def refusals(path: str, value: Any) -> list[tuple[str, Any, str]]:
    return list(out_of_range(of(path, value)))


def test_the_defaults_are_in_range() -> None:
    assert list(out_of_range(Params())) == []


def test_a_bound_is_in_range_and_what_is_beyond_it_is_not() -> None:
    wrong = {}
    for path, (low, high) in RANGES.items():
        for value in (low, high):
            if path in [found for found, _, _ in named(refusals, path, value)]:
                wrong[path, value] = "is refused"
        for value in (low - 1, high + 1):
            expected = (path, value, f"between {low} and {high}")
            if -(1 << 63) <= value < 1 << 64 and expected not in named(refusals, path, value):
                wrong[path, value] = "is not refused"
    assert wrong == {}


@pytest.mark.parametrize("path", ["gate.tau", "rrf_weight", "crag.upper", "crag.lower"])
def test_what_is_no_number_is_out_of_every_range(path: str) -> None:
    assert [found for found, _, _ in out_of_range(of(path, float("nan")))] == [path]
