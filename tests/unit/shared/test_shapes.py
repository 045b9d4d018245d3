"""Values with a shape: API keys, measures, parameters, labels."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from mathrag.errors import Invalid
from shared import shapes
from shared.params import RANGES, Params, out_of_range
from shared.rag.prompts import template
from shared.replies import Graded, Marked
from shared.shapes import KINDS, Measured, Scope, Value, What, find_measure, find_position, parse_label
from tests.unit.cases import named

# API keys: how they look, what is kept, what they allow.


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


# Measures by name, and what a sample is worth by each.

UNSET = msgspec.UNSET


@pytest.mark.parametrize(
    "name", ["", "a recall", "Accuracy", "answer@0", "answer@01", "answer@1001", "answer@-1", "answer@"]
)
def test_an_unknown_measure_is_refused_with_those_that_exist(name: str) -> None:
    with pytest.raises(LookupError, match="accuracy, exact, score, answer@K with K from 1 to 1000"):
        find_measure(name)


@pytest.mark.parametrize(
    ("name", "verdict", "value"),
    [
        ("accuracy", Marked(correct=True, strict=False, score=0.5), 1.0),
        ("exact", Marked(correct=True, strict=False, score=0.5), 0.0),
        ("score", Marked(correct=True, strict=False, score=0.5), 0.5),
        ("exact", Marked(correct=True), None),
        ("score", Marked(correct=True), None),
        ("score", Graded(math_verify=True, strict=True), None),
        ("exact", Graded(math_verify=False, strict=True), 1.0),
        ("accuracy", Graded(math_verify=None, strict=True), None),
        ("accuracy", None, None),
        ("exact", None, None),
    ],
)
def test_a_verdict_is_worth_what_the_measure_reads_of_it(
    name: str, verdict: Graded | Marked | None, value: float | None
) -> None:
    assert find_measure(name).value(Measured(verdict=verdict)) == value


@pytest.mark.parametrize(
    ("rank", "values"), [(1, (1, 1, 1)), (5, (0, 1, 1)), (6, (0, 0, 1)), (None, (0, 0, 0)), (UNSET, (None,) * 3)]
)
def test_an_answer_counts_within_the_first_k(rank: int | msgspec.UnsetType | None, values: tuple[object, ...]) -> None:
    measured = Measured(verdict=Marked(correct=True), answer_rank=rank)
    assert tuple(find_measure(f"answer@{k}").value(measured) for k in (1, 5, 1000)) == values


# The range of each parameter of a job.


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


# What labels may say.


@pytest.mark.parametrize("what", ["documents", "relevance"])
def test_labellers_are_told_what_the_judge_is_told(what: What) -> None:
    kind = KINDS[what]
    scale = kind.instructions.partition("from 1")[2].rstrip(".")
    assert scale in template(kind.rubrics[0]).text


@pytest.mark.parametrize(("what", "typed", "value"), [("documents", "4", 4), ("answers", "tie", "tie")])
def test_a_value_is_read_as_its_scale_has_it(what: What, typed: str, value: Value) -> None:
    assert parse_label(what, typed) == value
    assert KINDS[what].scale[find_position(what, value)] == value


@pytest.mark.parametrize(
    ("what", "typed"), [("documents", "6"), ("documents", "4.0"), ("answers", "True"), ("answers", "")]
)
def test_what_is_not_on_the_scale_is_refused(what: What, typed: str) -> None:
    with pytest.raises(ValueError, match="is not on the scale: "):
        parse_label(what, typed)
