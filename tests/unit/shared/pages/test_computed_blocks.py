"""Computed blocks of a page: what stands between the marks is written anew, and nothing else."""

import pytest

from shared.pages.pages import rewrite_blocks


def test_a_page_is_written_anew_between_its_marks_alone() -> None:
    text = "before\n<!-- main: computed -->\nold\n<!-- end -->\nafter 1 2 3\n"
    new = rewrite_blocks(text, {"main": "| new |"})
    assert new == "before\n<!-- main: computed -->\n\n| new |\n\n<!-- end -->\nafter 1 2 3\n"
    assert rewrite_blocks(new, {"main": "| new |"}) == new


def test_a_block_that_nothing_computes_is_refused() -> None:
    with pytest.raises(KeyError, match="strange"):
        rewrite_blocks("<!-- strange: computed -->\n1\n<!-- end -->", {})
