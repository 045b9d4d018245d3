"""What labels may say."""

import pytest

from shared.rag.prompts import template
from shared.shapes import KINDS, Value, What, find_position, parse_label


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
