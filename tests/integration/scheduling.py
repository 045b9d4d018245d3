"""What tests of the scheduler share: residencies as a guard would leave them, and what the scheduler wants next."""

from datetime import UTC, datetime

from shared.lease import residencies
from shared.runtime.advance import Advancer
from shared.storage.database import Database
from tests.integration.scene import furnish, model, rows, submit_job

DEVICE = "cpu:0"


class Hands:
    """The monotonic clock of whoever looks; only a test moves it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now


async def advance(database: Database) -> None:
    """Advance every sample as far as it goes."""
    while (await Advancer(database).advance()).samples:
        pass


async def work_for_the_generator(database: Database, items: int = 3) -> int:
    """A closed-book job whose generations are in the queue; the generator's id."""
    await furnish(database, items)
    await submit_job(database, "closed-book")
    await advance(database)
    return await model(database, "a-generator")


async def hold(database: Database, model_id: int, state: str = "open", reason: str | None = None) -> int:
    """The device's newest residency."""
    async with database.transaction() as connection:
        newest = await residencies.find_newest(connection, DEVICE)
        epoch = await residencies.insert_wanted(connection, DEVICE, newest.epoch if newest else 0, [model_id], "test")
        assert epoch is not None
        if state not in ("open", "wanted"):
            await residencies.set_state(connection, epoch, "open", datetime.now(UTC))
        if state != "wanted":
            await residencies.set_state(connection, epoch, state, datetime.now(UTC), reason)
    return epoch


async def wishes(database: Database) -> list[tuple[object, ...]]:
    """(models, cause) of all residencies that are wanted."""
    return await rows(database, "SELECT models, cause FROM residencies WHERE state = 'wanted' ORDER BY epoch")
