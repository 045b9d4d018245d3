"""The keyring costs a query every few seconds, whoever asks how often."""

from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from services.orchestrator.access.identity import FRESH_S, UNKNOWN_S, USED_S, Keyring
from shared import shapes
from shared.errors import Unavailable
from shared.storage import keys
from shared.storage.keys import ValidKey

pytestmark = pytest.mark.anyio
DATABASE: Any = object()


class Table:
    def __init__(self) -> None:
        self.rows: dict[str, ValidKey] = {}
        self.reads = 0
        self.uses: list[int] = []
        self.now = 1000.0
        self.broken = False

    def issue(self) -> str:
        issued = shapes.issue_key()
        self.rows[issued.prefix] = ValidKey(len(self.rows), "alice", issued.prefix, issued.digest, ("read",))
        return issued.key

    async def valid(self, _database: object) -> dict[str, ValidKey]:
        self.reads += 1
        if self.broken:
            raise OperationalError("SELECT", {}, Exception("gone"))
        return dict(self.rows)

    async def used(self, _database: object, key: ValidKey) -> None:
        self.uses.append(key.id)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    double = Table()
    monkeypatch.setattr(keys, "load_valid_keys", double.valid)
    monkeypatch.setattr(keys, "record_use", double.used)
    return double


async def test_polling_costs_no_query(table: Table) -> None:
    key, keyring = table.issue(), Keyring(lambda: table.now)
    found = [await keyring.find(DATABASE, key) for _ in range(1000)]
    assert all(each is not None and each.name == "alice" for each in found)
    assert (table.reads, len(table.uses)) == (1, 1)


async def test_a_revoked_key_opens_nothing_after_five_seconds(table: Table) -> None:
    key, keyring = table.issue(), Keyring(lambda: table.now)
    assert await keyring.find(DATABASE, key)
    table.rows.clear()
    table.now += FRESH_S - 0.001
    assert await keyring.find(DATABASE, key)
    table.now += 0.001
    assert await keyring.find(DATABASE, key) is None


async def test_a_new_key_opens_at_once(table: Table) -> None:
    keyring = Keyring(lambda: table.now)
    assert await keyring.find(DATABASE, table.issue())
    table.now += UNKNOWN_S
    assert await keyring.find(DATABASE, table.issue())


async def test_strangers_cause_few_queries(table: Table) -> None:
    keyring = Keyring(lambda: table.now)
    for _ in range(1000):
        assert await keyring.find(DATABASE, shapes.issue_key().key) is None
        assert await keyring.find(DATABASE, "no key at all") is None
    assert table.reads == 1


async def test_the_prefix_alone_opens_nothing(table: Table) -> None:
    key = table.issue()
    forged = key[:-64] + "0" * 64
    assert await Keyring(lambda: table.now).find(DATABASE, forged) is None
    assert not table.uses


async def test_a_use_is_noted_once_a_minute(table: Table) -> None:
    key, keyring = table.issue(), Keyring(lambda: table.now)
    for seconds in (0.0, USED_S - 1, 1.0, 1.0):
        table.now += seconds
        await keyring.find(DATABASE, key)
    assert len(table.uses) == 2


async def test_without_database_nobody_is_let_in(table: Table) -> None:
    key, keyring = table.issue(), Keyring(lambda: table.now)
    assert await keyring.find(DATABASE, key)
    table.broken, table.now = True, table.now + FRESH_S
    with pytest.raises(Unavailable, match="database does not answer"):
        await keyring.find(DATABASE, key)
