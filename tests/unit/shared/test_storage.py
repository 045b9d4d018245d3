"""References to jobs, counts of their samples, names, and cursors."""

import uuid

import pytest

from shared.errors import BadRequest, Invalid
from shared.runtime.lifecycle import make_next_name
from shared.storage import database, jobs
from shared.storage.database import check_name

pytestmark = pytest.mark.anyio

ID = uuid.UUID("6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11")


@pytest.mark.parametrize("prefix", ["6b0c", "6B0C1E", "6b0c1e9e-5f0f", "6b0c1e9e5f0f4c0e", str(ID), ID.hex])
def test_a_prefix_spans_the_ids_that_begin_with_it(prefix: str) -> None:
    span = jobs.id_range(prefix)
    assert span is not None
    assert span[0] <= ID <= span[1]


def test_a_whole_id_spans_itself_only() -> None:
    assert jobs.id_range(str(ID)) == (ID, ID)


@pytest.mark.parametrize("reference", ["6b0", "", "first", "6b0c1e9e-5f0f-4c0e-9a55-3d0f4f0f6a11f", "6b-0c", "6b0c%"])
def test_what_cannot_begin_an_id_spans_nothing(reference: str) -> None:
    assert jobs.id_range(reference) is None


@pytest.mark.parametrize(
    ("state", "failed", "cancelled", "in_progress"),
    [("running", 1, 0, 6), ("preparing", 1, 0, 6), ("failed", 7, 0, 0), ("cancelled", 1, 6, 0)],
)
def test_counts_always_add_up(state: str, failed: int, cancelled: int, in_progress: int) -> None:
    counts = jobs.count_requests(state, total=10, completed=3, failed=1, cancelled=0, unparsed=1)
    assert (counts.failed, counts.cancelled, counts.in_progress) == (failed, cancelled, in_progress)
    assert counts.completed + counts.failed + counts.cancelled + counts.in_progress == counts.total


@pytest.mark.parametrize("name", ["a", "math-500", "run_1.2", "A" * 100])
def test_a_plain_name_is_usable(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["", "-a", ".", "a b", "a/b", "ä", "a\n", "A" * 101, "../x"])
def test_a_name_that_would_need_quoting_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="is not a valid name"):
        check_name(name)


SCOPE = database.cursor_scope("jobs", state=None, name="first")


@pytest.mark.parametrize("key", [(7,), (-1, 0), (database.LARGEST_KEY, 3)])
def test_a_cursor_gives_back_its_key(key: tuple[int, ...]) -> None:
    assert database.decode_cursor(database.encode_cursor(SCOPE, *key), SCOPE, len(key)) == key


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "x",
        "%%%",
        "é",
        "\0",
        database.encode_cursor(SCOPE, 1, 2),
        database.encode_cursor(SCOPE, 1 << 31),
        "WyJhIl0",
        "WyJhIixbMV0sM10",
    ],
)
def test_a_cursor_that_is_not_ours_is_refused(cursor: str) -> None:
    with pytest.raises(BadRequest, match="cursor"):
        database.decode_cursor(cursor, SCOPE, 1)


def test_a_cursor_gives_back_the_text_that_rows_are_sorted_by() -> None:
    assert database.decode_sorted_cursor(database.encode_cursor(SCOPE, 7, sorted_by="näme"), SCOPE) == ("näme", 7)


@pytest.mark.parametrize(
    "cursor", [database.encode_cursor(SCOPE, 7, sorted_by="a\0"), database.encode_cursor(SCOPE, 1, 2)]
)
def test_a_forged_text_to_sort_by_is_refused(cursor: str) -> None:
    with pytest.raises(BadRequest, match="cursor"):
        database.decode_sorted_cursor(cursor, SCOPE)


@pytest.mark.parametrize(
    "other",
    [
        database.cursor_scope("jobs", state="running", name="first"),
        database.cursor_scope("jobs", state=None, name="second"),
        database.cursor_scope("corpora", state=None, name="first"),
    ],
)
def test_a_cursor_is_refused_where_it_would_leave_rows_out(other: str) -> None:
    with pytest.raises(BadRequest, match="other filters") as raised:
        database.decode_cursor(database.encode_cursor(SCOPE, 7), other, 1)
    assert "filters" in str(raised.value.hint)


def test_the_order_of_filters_does_not_matter() -> None:
    assert database.cursor_scope("jobs", name="first", state=None) == SCOPE


def test_a_page_knows_whether_there_is_another() -> None:
    assert database.make_page([3, 2, 1], 2, SCOPE, 2) == database.Page(
        data=[3, 2], next_cursor=database.encode_cursor(SCOPE, 2)
    )
    assert database.make_page([3, 2], 2, SCOPE, 2).next_cursor is None


@pytest.mark.parametrize(
    ("name", "following"),
    [
        ("first", "first-r2"),
        ("first-r2", "first-r3"),
        ("first-r9", "first-r10"),
        ("r2", "r2-r2"),
        ("a" * 100, "a" * 97 + "-r2"),
    ],
)
def test_a_requeued_job_has_a_name_of_its_own(name: str, following: str) -> None:
    assert check_name(make_next_name(name)) == following
