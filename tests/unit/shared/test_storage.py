"""What the database layer does without a database: names of jobs, outages, configurations, its SQL."""

import ast
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from mathrag.cli.output import parse_parameters
from mathrag.errors import BadRequest, Invalid
from services.orchestrator.api.jobs import JobRequest
from shared.params import Params
from shared.runtime.lifecycle import make_next_name
from shared.runtime.parameters import parse_params
from shared.settings import REPOSITORY
from shared.storage import database, jobs
from shared.storage.configurations import DEEPEST, Configuration, merge, prune
from shared.storage.database import (
    NAMES,
    PAUSES_S,
    Database,
    check_name,
    concerns_rows,
    fill_names,
    is_passing,
    retry_through_outage,
)
from shared.storage.jobs import FEWEST, estimate_bounds, estimate_seconds
from tests.faults.proxy import HOST

pytestmark = pytest.mark.anyio

# References to jobs, counts of their samples, names, and cursors.

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


# Which errors of the database pass by themselves, and how long one waits for that.


class Said(Exception):
    def __init__(self, sqlstate: str | None) -> None:
        super().__init__("said")
        self.sqlstate = sqlstate


def error(sqlstate: str | None, *, cut: bool = False) -> DBAPIError:
    return DBAPIError("SELECT 1", {}, Said(sqlstate), connection_invalidated=cut)


class Clock:
    def __init__(self) -> None:
        self.slept: list[float] = []

    async def pause(self, seconds: float) -> None:
        self.slept.append(seconds)


@pytest.mark.parametrize(
    "sqlstate", ["08001", "08003", "25006", "25P03", "40001", "40P01", "53100", "53300", "57P01", "57P03", "58030"]
)
def test_what_the_moment_is_to_blame_for_passes(sqlstate: str) -> None:
    assert is_passing(error(sqlstate))


@pytest.mark.parametrize("sqlstate", [None, "23503", "23505", "42601", "42P01", "57014", "P0001"])
def test_what_the_statement_is_to_blame_for_does_not(sqlstate: str | None) -> None:
    assert not is_passing(error(sqlstate))
    assert not is_passing(ProgrammingError("SELECT 1", {}, Said(sqlstate)))


def test_a_connection_that_was_cut_and_a_pool_without_one_pass_too() -> None:
    assert is_passing(error(None, cut=True))
    assert is_passing(DBAPIError("SELECT 1", {}, ConnectionResetError()))
    assert is_passing(PoolTimeoutError("QueuePool limit"))
    assert not is_passing(TimeoutError())
    assert not is_passing(KeyError("x"))


async def test_it_is_done_again_until_the_outage_is_over() -> None:
    clock, tries = Clock(), []

    async def do() -> str:
        tries.append(1)
        if len(tries) <= len(PAUSES_S) + 2:
            raise error("57P03")
        return "done"

    assert await retry_through_outage(do, 60, clock.pause) == "done"
    assert clock.slept == [*PAUSES_S, PAUSES_S[-1], PAUSES_S[-1]]


async def test_patience_ends_with_the_last_error() -> None:
    clock = Clock()

    async def do() -> None:
        raise error("57P03")

    with pytest.raises(DBAPIError):
        await retry_through_outage(do, 3, clock.pause)
    assert 3 <= sum(clock.slept) < 4.5


async def test_an_error_that_does_not_pass_is_raised_at_once() -> None:
    clock = Clock()

    async def do() -> None:
        raise error("23505")

    with pytest.raises(DBAPIError):
        await retry_through_outage(do, 60, clock.pause)
    assert not clock.slept


async def test_a_server_that_is_not_there_is_an_outage() -> None:
    database = Database(f"postgresql+asyncpg://somebody@{HOST}:1/nothing", pinned=False)
    with pytest.raises(DBAPIError, match="Connect call failed") as raised:
        async with database.transaction():
            pass
    assert is_passing(raised.value)
    await database.close()


@pytest.mark.parametrize(
    "fault",
    [error("57P01"), error("42P01"), error("42501"), OSError("no descriptor"), ImportError("of another release")],
)
def test_what_would_fail_for_every_row_blames_none(fault: Exception) -> None:
    assert not concerns_rows(fault)


@pytest.mark.parametrize("fault", [error("22003"), error("22021"), error(None), ValueError("cannot be decoded")])
def test_what_other_rows_might_not_raise_concerns_rows(fault: Exception) -> None:
    assert concerns_rows(fault)


# What is changed while everything runs: how changes lie on top of each other, and what a job gets of them.


def test_a_change_is_laid_over_what_is_there_object_by_object() -> None:
    under = {"gate": {"tau": 0.3, "top": 3}, "enhance": {"terms": {"gcd": ["a"]}}, "seed": 1}
    over = {"gate": {"tau": 0.5}, "enhance": {"terms": {"gcd": ["b"], "lcm": []}}, "seed": {}}
    assert merge(under, over) == {
        "gate": {"tau": 0.5, "top": 3}, "enhance": {"terms": {"gcd": ["b"], "lcm": []}}, "seed": {},
    }  # fmt: skip
    assert under["gate"] == {"tau": 0.3, "top": 3}


def test_a_null_takes_a_parameter_away() -> None:
    assert prune({"gate": {"tau": None}, "crag": {"upper": 0.8, "lower": None}, "seed": 0}) == {
        "crag": {"upper": 0.8}, "seed": 0,
    }  # fmt: skip


def test_what_is_nested_deeper_than_parameters_is_not_walked_through() -> None:
    deep: dict[str, object] = {}
    for _ in range(100_000):
        deep = {"gate": deep}
    assert prune({"a": None, **deep}, 0) == deep
    found = prune(merge({"gate": {"tau": 0.1}}, deep))
    for _ in range(DEEPEST + 2):
        found = found["gate"]
    with pytest.raises(Invalid, match=r"`params\.gate"):
        parse_params(deep)
    while deep:  # a deep object is taken apart by hand: Python frees it recursively
        deep = deep.pop("gate")  # type: ignore[assignment]


def test_a_jobs_own_parameters_win_over_the_configured_ones_and_these_over_the_defaults() -> None:
    configured = {"gate": {"tau": 0.3, "top": 3}, "candidates": 20}
    params = parse_params({"gate": {"tau": 0.5}}, configured)
    assert (params.gate.tau, params.gate.top, params.gate.items) == (0.5, 3, Params().gate.items)
    assert params.candidates == 20


def test_a_null_of_a_job_is_a_value_of_its_own() -> None:
    assert parse_params({"crag": {"upper": None}}, {"crag": {"upper": 0.8}}).crag.upper is None
    with pytest.raises(Invalid, match=r"`params\.candidates`: must be a whole number between 1 and 1000, not null"):
        parse_params({"candidates": None}, {"candidates": 20})


def test_a_value_out_of_range_is_named_with_the_range_and_a_fix() -> None:
    wrong = {}
    for values, message in (
        ({"context_size": 0}, "`params.context_size`: must be between 1 and 10, not 0"),
        ({"crag": {"upper": 2}}, "`params.crag.upper`: must be between 0 and 1, not 2.0"),
        ({"crag": {"similarity": {"lower": -1}}}, "`params.crag.similarity.lower`: must be between 0 and 1, not -1.0"),
        ({"generate": {"temperature": 3}}, "`params.generate.temperature`: must be between 0 and 2, not 3.0"),
        ({"crag": {"rounds": 9}}, "`params.crag.rounds`: must be a whole number between 0 and 5, not 9"),
        ({"critic": {"k": "many"}}, '`params.critic.k`: must be a whole number between 1 and 20, not "many"'),
        (
            {"self_consistency": {"temperature": 0}},
            "`params.self_consistency.temperature`: must be a number above 0, at most 2, not 0",
        ),
        ({"rerank": {"enabled": "yes"}}, '`params.rerank.enabled`: must be true or false, not "yes"'),
        ({"grading": {"grader": "Math X"}}, "`params.grading.grader`: unknown grader 'Math X'; choose one of "),
    ):
        with pytest.raises(Invalid) as refused:
            parse_params(values)
        if not (refused.value.message.startswith(message) and refused.value.hint):
            wrong[message] = (refused.value.message, refused.value.hint)
    assert wrong == {}


def test_a_configuration_of_an_earlier_release_keeps_a_value_that_is_out_of_range_now() -> None:
    configured = {"context_size": 0, "crag": {"upper": 2}}
    assert parse_params({}, configured).context_size == 0
    assert parse_params({"rrf_k": 5}, configured).crag.upper == 2
    with pytest.raises(Invalid, match="must be between 1 and 10, not 0"):
        parse_params({"context_size": 0}, configured)


def test_what_does_not_fit_together_is_named() -> None:
    with pytest.raises(Invalid, match=r"`params\.context_size`: must be between 1 and 3, not 5"):
        parse_params({"candidates": 3}, {"context_size": 5})


DOCUMENTED = {
    "enhance": {"rewrite": True, "decompose": True, "synonyms": True, "correct": True, "subqueries": 3},
    "fusion": {"method": "rrf", "dense": 0.7, "sparse": 0.3},
    "rrf_k": 60,
    "crag": {"evaluator": "similarity", "upper": 0.8, "lower": 0.3, "diversity": 0.5, "rounds": 2},
    "rerank": {"enabled": True, "threshold": 0.4},
    "compress": {"enabled": True, "ratio": 0.7, "tokens": 4000},
}
"""Seed document 001's `rag_enhancement`, in our names."""


def test_the_source_documents_configuration_can_be_set() -> None:
    page = (REPOSITORY / "docs" / "how-to" / "api.md").read_text("utf-8")
    (line,) = re.findall(r"^mathrag config set (.*)$", page, re.MULTILINE)
    said = parse_parameters(line.split())
    assert parse_params(said) == parse_params(DOCUMENTED)


@pytest.mark.parametrize("bound", [float("nan"), float("inf")])
def test_a_threshold_is_a_number(bound: float) -> None:
    with pytest.raises(Invalid, match=r"`params\.crag\.upper`: must be between 0 and 1, not (nan|inf)"):
        parse_params({"crag": {"upper": bound}})


def test_a_submission_says_which_configuration_filled_it_in() -> None:
    request = JobRequest(name="a", dataset="d", pipeline="mathrag-gate", params={"seed": 3})
    submission = request.submission(Configuration(version=7, params={"candidates": 20, "seed": 1}))
    assert (submission.configuration, submission.params.candidates, submission.params.seed) == (7, 20, 3)


# States that the database keeps as numbers, and SQL that many statements share, are written in one place.

SOURCES = sorted(
    file
    for folder in ("shared", "services", "mathrag", "mathrag_gate", "tools")
    for file in (REPOSITORY / folder).rglob("*.py")
    if file != REPOSITORY / "shared/storage/database.py"
)
NUMBERED = re.compile(r"\bstate\s*(=|<>|!=|<=?|>=?|(NOT )?IN\s*\(|WHEN|= CASE [^)]*? THEN)\s*\d")
ACCEPTED = re.compile(r"(?<!NOT )\b\w+\.accepted AND\b|\bAND \w+\.accepted\b")
SHARED = [value for value in NAMES.values() if re.search("[a-z]", value)]


def written_out(text: str) -> Iterator[str]:
    flat = " ".join(text.split())
    yield from (found[0] for pattern in (NUMBERED, ACCEPTED) if (found := pattern.search(flat)))
    yield from (value for value in SHARED if value in flat)


def texts(file: Path) -> Iterator[tuple[str, str]]:
    source = file.read_text()
    for node in ast.walk(ast.parse(source)) if any(written_out(source)) else ():
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield f"{file.relative_to(REPOSITORY)}:{node.lineno}", node.value


def test_no_module_writes_out_what_has_a_name() -> None:
    assert len(SOURCES) > 300
    assert [(place, each) for file in SOURCES for place, text in texts(file) for each in written_out(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM samples WHERE state = 1",
        "SELECT id FROM samples s WHERE s.state\n    IN (0, 1)",
        "UPDATE samples SET state = 4, ended_at = now()",
        "SELECT CASE s.state WHEN 4 THEN 'cancelled' END FROM samples s",
        "SELECT id FROM samples s WHERE s.state = CASE j.state WHEN 'paused' THEN 1 END",
        "SELECT a.reply FROM calls c JOIN attempts a ON a.call_id = c.id AND a.accepted",
        "SELECT a.reply FROM calls c JOIN attempts b ON b.accepted AND b.call_id = c.id",
        "SELECT id FROM jobs WHERE state IN ('preparing', 'running')",
        "SELECT 1 FROM steps t WHERE t.sample_id = s.id\n    AND t.position = s.position - 1",
    ],
)
def test_a_statement_that_writes_out_what_has_a_name_is_found(text: str) -> None:
    assert list(written_out(text))


@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM samples WHERE state = {WAITING}",
        "UPDATE samples s SET state = u.state WHERE s.id = u.id",
        "SELECT id FROM jobs WHERE state IN ('cancelling', 'paused') LIMIT 1",
        "SELECT id FROM attempts a WHERE NOT a.accepted AND a.outcome = 'lapsed'",
    ],
)
def test_other_statements_are_not(text: str) -> None:
    assert not list(written_out(text))


def test_an_unknown_name_is_refused_while_its_module_loads() -> None:
    with pytest.raises(KeyError, match="WAITNG"):
        fill_names("SELECT id FROM samples WHERE state = {WAITNG}")


# A generator holds no connection of the database while its reader is busy, which may be a slow client.

OPENERS = {"transaction", "statement", "snapshot", "begin", "connect"}


def find_yields(source: str) -> Iterator[int]:
    if "yield" not in source:
        return
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and not function.decorator_list:
            for block in ast.walk(function):
                if isinstance(block, ast.AsyncWith | ast.With) and any(map(opens_transaction, block.items)):
                    yield from (node.lineno for node in ast.walk(block) if isinstance(node, ast.Yield | ast.YieldFrom))


def opens_transaction(item: ast.withitem) -> bool:
    call = item.context_expr
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in OPENERS


def test_no_generator_yields_in_a_transaction() -> None:
    files = [file for folder in ("shared", "services") for file in (REPOSITORY / folder).rglob("*.py")]
    assert len(files) > 100
    places = [f"{file.relative_to(REPOSITORY)}:{line}" for file in files for line in find_yields(file.read_text())]
    assert places == [], "read page by page instead, each in its own statement, as `rule_banks.read_rules` does"


@pytest.mark.parametrize(
    "body",
    [
        "async with database.transaction() as connection:\n        yield 1",
        "async with database.snapshot() as connection:\n        for row in await read(connection): yield row",
    ],
)
def test_a_yield_in_a_transaction_is_found(body: str) -> None:
    assert list(find_yields(f"async def stream(database):\n    {body}\n"))
    assert not list(find_yields(f"@asynccontextmanager\nasync def stream(database):\n    {body}\n"))


# The estimate of what a job will still take: from what has ended, or none.

FIRST = datetime(2026, 11, 21, 8, tzinfo=UTC)


def test_the_pace_is_that_between_the_first_and_the_last_sample_that_ended() -> None:
    assert estimate_seconds(100, ended=11, first=FIRST, last=FIRST + timedelta(seconds=5)) == 50


def test_a_rest_of_a_second_is_a_second() -> None:
    assert estimate_seconds(1, ended=101, first=FIRST, last=FIRST + timedelta(seconds=10)) == 1
    assert estimate_seconds(0, ended=101, first=FIRST, last=FIRST + timedelta(seconds=10)) == 0


@pytest.mark.parametrize(
    ("ended", "first", "last"), [(0, None, None), (FEWEST - 1, FIRST, FIRST + timedelta(seconds=5)), (50, FIRST, FIRST)]
)
def test_there_is_no_estimate_without_a_pace(ended: int, first: datetime | None, last: datetime | None) -> None:
    assert estimate_seconds(100, ended, first, last) is None


def test_the_interval_is_that_of_the_number_of_samples_that_end_in_such_a_time() -> None:
    assert estimate_bounds(100, ended=11, first=FIRST, last=FIRST + timedelta(seconds=10)) == (54, 209)


def test_the_more_has_ended_the_narrower_the_interval() -> None:
    few = estimate_bounds(100, ended=11, first=FIRST, last=FIRST + timedelta(seconds=10))
    many = estimate_bounds(100, ended=1001, first=FIRST, last=FIRST + timedelta(seconds=1000))
    assert few[0] < many[0] < 100 < many[1] < few[1]
