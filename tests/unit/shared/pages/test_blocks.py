"""Computed blocks of a page: what stands between the marks is written anew, and nothing else."""

import pytest

from shared.pages.blocks import regenerated


def test_a_page_is_written_anew_between_its_marks_alone() -> None:
    """What people wrote stays; the same numbers leave the same page."""
    text = "before\n<!-- main: computed -->\nold\n<!-- end -->\nafter 1 2 3\n"
    new = regenerated(text, {"main": "| new |"})
    assert new == "before\n<!-- main: computed -->\n\n| new |\n\n<!-- end -->\nafter 1 2 3\n"
    assert regenerated(new, {"main": "| new |"}) == new


def test_a_block_that_nothing_computes_is_refused() -> None:
    """A number that nobody computes must not look as if."""
    with pytest.raises(KeyError, match="strange"):
        regenerated("<!-- strange: computed -->\n1\n<!-- end -->", {})
