"""Which errors of the database pass by themselves, and how long one waits for that."""

import pytest
from sqlalchemy.exc import DBAPIError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from shared.storage.database import PAUSES_S, Database, concerns_rows, is_passing, retry_through_outage
from tests.faults.proxy import HOST

pytestmark = pytest.mark.anyio


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
