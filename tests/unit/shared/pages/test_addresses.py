"""Ends of addresses."""

from shared.pages.pages import format_query


def test_what_is_not_set_is_left_out_and_0_is_a_value() -> None:
    assert format_query({"index": 0, "name": "a b", "cursor": None, "state": "", "wrong": False}) == "?index=0&name=a+b"
    assert format_query({"cursor": None}) == ""
