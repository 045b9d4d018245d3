"""The simulator on its database: virtual `now()`, turns and locks, and that a seed is a schedule."""

import asyncio
from collections.abc import Iterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from tests.simulation.clock import EPOCH_S
from tests.simulation.link import Link, Mode, Rows
from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.plan import plan
from tests.simulation.runner import Runner, runner
from tests.simulation.store import Store, moment

WITHOUT_FAULTS = 0
"""A seed."""


@pytest.fixture(scope="module")
def simulation() -> Iterator[Runner]:
    with runner() as simulation:
        yield simulation


@pytest.fixture
def store(simulation: Runner) -> Store:
    simulation.store.empty()
    for name in ("a", "b"):
        simulation.store.dataset(name, 0, 1, poisonous=False)
    return simulation.store


async def said(store: Store, link: Link, sql: str) -> object:
    return (await store.turnstile.begin(link.pid, link.execute(text(sql)))).scalar()


async def ended(store: Store, *links: Link) -> None:
    for link in links:
        await store.turnstile.begin(link.pid, link.rollback())
        store.take_back(link)


def change(name: str) -> str:
    return f"UPDATE datasets SET items = items + 1 WHERE name = '{name}'"  # noqa: S608 - a constant


def test_the_database_reads_the_virtual_clock(simulation: Runner, store: Store) -> None:
    async def main() -> None:
        link = store.lend(Mode.TRANSACTION)
        store.clock.set(EPOCH_S)
        assert await said(store, link, "SELECT now()") == moment(EPOCH_S)
        store.clock.set(EPOCH_S + 3600)
        assert await said(store, link, "SELECT now()") == moment(EPOCH_S)
        assert await said(store, link, "SELECT clock_timestamp()") == moment(EPOCH_S + 3600)
        await ended(store, link)
        link = store.lend(Mode.TRANSACTION)
        assert await said(store, link, "SELECT now()") == moment(EPOCH_S + 3600)
        await ended(store, link)

    simulation.loop.run_until_complete(main())


def test_defaults_and_triggers_read_it_too(store: Store) -> None:
    store.clock.set(EPOCH_S + 7)
    store.dataset("another", 0, 1, poisonous=False)
    created = store.watch.rows("SELECT created_at FROM datasets WHERE name = 'another'")
    assert created[0][0] == moment(EPOCH_S + 7)


def test_who_waits_for_a_lock_stands_aside_until_it_is_let_go(simulation: Runner, store: Store) -> None:
    async def main() -> None:
        first, second, third = (store.lend(Mode.TRANSACTION) for _ in range(3))
        await said(store, first, change("a"))
        waiting = asyncio.ensure_future(said(store, second, change("a")))
        await said(store, third, change("b"))
        assert not waiting.done()
        await ended(store, first, third)
        await waiting
        await ended(store, second)

    waits = store.turnstile.waits
    simulation.loop.run_until_complete(main())
    assert store.turnstile.waits == waits + 1


def test_a_deadlock_is_a_real_one(simulation: Runner, store: Store) -> None:
    async def main() -> None:
        first, second = (store.lend(Mode.TRANSACTION) for _ in range(2))
        await said(store, first, change("a"))
        await said(store, second, change("b"))
        waiting = asyncio.ensure_future(said(store, first, change("b")))
        await asyncio.sleep(1)
        # PostgreSQL ends the one whose timer runs out first; on a busy machine, that may be either.
        outcomes = await asyncio.gather(waiting, said(store, second, change("a")), return_exceptions=True)
        (error,) = [each for each in outcomes if isinstance(each, Exception)]
        assert "deadlock detected" in str(error)
        await ended(store, second)
        await ended(store, first)

    simulation.loop.run_until_complete(main())


def test_a_statement_returns_what_sqlalchemy_would_return(simulation: Runner, store: Store) -> None:
    async def main() -> None:
        link = store.lend(Mode.STATEMENT)

        def done(sql: str, **parameters: object) -> asyncio.Task[Rows]:
            return store.turnstile.begin(link.pid, link.execute(text(sql), parameters))

        found = await done("SELECT name, :n + 1 AS n FROM datasets ORDER BY 1", n=1)
        assert [(row.name, row.n) for row in found] == [("a", 2), ("b", 2)]
        assert (await done("SELECT CAST(:said AS jsonb)", said='{"a": [1]}')).scalar() == {"a": [1]}
        assert (await done("UPDATE datasets SET items = 2")).rowcount == 2
        with pytest.raises(DBAPIError) as failed:
            await done("SELECT 1 / CAST(:n AS integer)", n=0)
        assert getattr(failed.value.orig, "sqlstate", "") == "22012"
        store.take_back(link)

    simulation.loop.run_until_complete(main())


@pytest.mark.parametrize("seed", [1, 3, 10])
def test_a_seed_is_the_same_schedule_twice(simulation: Runner, seed: int) -> None:
    once = simulation.play(plan(seed), fresh=True)
    simulation.play(plan(seed + 100))
    again = simulation.play(plan(seed), fresh=True)
    assert again.trace == once.trace
    assert again.events == once.events


def test_without_faults_nothing_happens(simulation: Runner) -> None:
    result = simulation.play(plan(WITHOUT_FAULTS))
    assert result.events == []
    assert result.violations == []


def test_a_mutant_is_found_where_the_real_runtime_is_clean(simulation: Runner) -> None:
    mutant = MUTANTS["a flip without verification"]
    seeds = [plan(seed, mutant.points) for seed in range(20)]
    with mutated(mutant.mutations):
        found = next(each for each in seeds if simulation.play(each).violations)
    assert [simulation.play(each).violations for each in (*seeds[:3], found)] == [[]] * 4
