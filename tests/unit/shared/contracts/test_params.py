"""The range of each parameter of a job."""

from typing import Any

import msgspec
import pytest

from shared.contracts.params import RANGES, Params, out_of_range


def of(path: str, value: Any) -> Params:
    """The defaults, but for one parameter."""
    tree = value
    for name in reversed(path.split(".")):
        tree = {name: tree}
    return msgspec.convert(tree, Params)


def test_the_defaults_are_in_range() -> None:
    """A job that names nothing is accepted."""
    assert list(out_of_range(Params())) == []


@pytest.mark.parametrize(("path", "bounds"), RANGES.items())
def test_a_bound_is_in_range_and_what_is_beyond_it_is_not(path: str, bounds: tuple[int, int]) -> None:
    """The refusal names the parameter, its value and both bounds."""
    low, high = bounds
    assert path not in [found for value in bounds for found, _, _ in out_of_range(of(path, value))]
    beyond = [value for value in (low - 1, high + 1) if -(1 << 63) <= value < 1 << 64]
    for value in beyond:
        assert (path, value, f"between {low} and {high}") in list(out_of_range(of(path, value)))


@pytest.mark.parametrize("path", ["gate.tau", "rrf_weight", "crag.upper", "crag.lower"])
def test_what_is_no_number_is_out_of_every_range(path: str) -> None:
    """JSON would silently keep null of it."""
    assert [found for found, _, _ in out_of_range(of(path, float("nan")))] == [path]
