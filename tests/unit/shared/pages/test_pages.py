import pytest

from shared.pages import pages
from shared.pages.pages import format_query, rewrite_blocks

# Ends of addresses.


def test_what_is_not_set_is_left_out_and_0_is_a_value() -> None:
    assert format_query({"index": 0, "name": "a b", "cursor": None, "state": "", "wrong": False}) == "?index=0&name=a+b"
    assert format_query({"cursor": None}) == ""


# Style sheet, scripts and libraries of the pages.


def test_what_reads_events_comes_with_what_starts_it() -> None:
    found = pages.find_asset(pages.asset_path("live.js").removeprefix("/assets/"))
    assert found is not None
    body = found.body.decode()
    assert body.index('version="4.0.1"') < body.index('registerExtension("sse"')


def test_no_file_of_a_library_is_served_twice() -> None:
    assert pages.find_asset("x/htmx-4.0.1/htmx.min.js") is None
    assert pages.find_asset("x/katex-0.19.1/LICENSE") is None
    assert pages.find_asset("x/katex-0.19.1/katex.min.js") is not None


# Computed blocks of a page: what stands between the marks is written anew, and nothing else.


def test_a_page_is_written_anew_between_its_marks_alone() -> None:
    text = "before\n<!-- main: computed -->\nold\n<!-- end -->\nafter 1 2 3\n"
    new = rewrite_blocks(text, {"main": "| new |"})
    assert new == "before\n<!-- main: computed -->\n\n| new |\n\n<!-- end -->\nafter 1 2 3\n"
    assert rewrite_blocks(new, {"main": "| new |"}) == new


def test_a_block_that_nothing_computes_is_refused() -> None:
    with pytest.raises(KeyError, match="strange"):
        rewrite_blocks("<!-- strange: computed -->\n1\n<!-- end -->", {})
