"""Entity tags: who has seen what, and who may change what he has not seen."""

import msgspec
import pytest

from services.orchestrator.api.routes import KnownTags, get_versions, make_tag, parse_tags, respond_with_tag
from shared.errors import BadRequest

TAG = '"3-5d0c91be77aac0de"'


@pytest.mark.parametrize("header", [TAG, f' {TAG} , W/"x"', '""', '"é"', "*", f"W/{TAG}"])
def test_lists_of_tags_are_understood(header: str) -> None:
    assert parse_tags(header, "If-Match") == KnownTags(
        frozenset(part.strip() for part in header.split(",")) - {"*"}, anything=header == "*"
    )


@pytest.mark.parametrize("header", ["", "3", '"', f"{TAG}{TAG}", f"{TAG},", "*, *", "'3'", '"a b', "\t", f"w/{TAG}"])
def test_what_is_no_tag_is_refused_by_the_name_of_its_header(header: str) -> None:
    with pytest.raises(BadRequest, match="`If-Match`"):
        parse_tags(header, "If-Match")


def test_a_writer_is_held_to_versions_of_strong_tags_alone() -> None:
    known = parse_tags(f'{TAG}, "7-0000000000000000", W/"9-0000000000000000", "abc", "1-xyz"', "If-Match")
    assert get_versions(known) == {3, 7}


def test_a_tag_changes_with_what_is_shown_and_with_the_version() -> None:
    assert make_tag(b"a", 1) == make_tag(b"a", 1)
    assert len({make_tag(b"a", 1), make_tag(b"b", 1), make_tag(b"a", 2), make_tag(b"a")}) == 4
    assert get_versions(KnownTags(frozenset({make_tag(b"a", 12)}))) == {12}


@pytest.mark.parametrize("prefix", ["", "W/"])
def test_a_reader_who_has_it_gets_304_without_a_body(prefix: str) -> None:
    first = respond_with_tag({"a": 1}, version=4, headers={"Retry-After": "1"})
    assert (first.status_code, msgspec.json.decode(first.body)) == (200, {"a": 1})
    again = respond_with_tag({"a": 1}, version=4, seen=KnownTags(frozenset({prefix + first.headers["etag"]})))
    assert (again.status_code, again.body, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert "content-type" not in again.headers


def test_a_reader_who_has_another_one_gets_it() -> None:
    seen = KnownTags(frozenset({respond_with_tag({"done": 1}, version=4).headers["etag"]}))
    assert respond_with_tag({"done": 2}, version=4, seen=seen).status_code == 200
    assert respond_with_tag({"done": 2}, seen=KnownTags(frozenset(), anything=True)).status_code == 304
