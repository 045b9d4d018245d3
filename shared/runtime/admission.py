"""Whether one more job is taken in: how many may live at once, and how large one may be."""

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.errors import TooLarge, TooMany
from shared.settings import Limits

LIVE = text("SELECT count(*) FROM (SELECT FROM jobs WHERE ended_at IS NULL LIMIT :most) live")


async def admit(connection: AsyncConnection, limits: Limits, *, items: int, repeats: int) -> None:
    """Return if the job may be inserted.

    Submits at the same moment may each become the last one: the limit protects the service, nobody pays by it, and an
    exact count would make every submit wait for a large one beside it.

    Raises:
        TooLarge: it has more samples than a job may have.
        TooMany: as many jobs live as may.
    """
    if items * repeats > limits.samples:
        raise TooLarge(
            f"{items} items times {repeats} repeats are more samples than `limits.samples` allows ({limits.samples})",
            hint="fewer repeats, or several datasets",
        )
    if (await connection.execute(LIVE, {"most": limits.live_jobs})).scalar_one() >= limits.live_jobs:
        raise TooMany(
            f"{limits.live_jobs} jobs have not ended, as many as `limits.live_jobs` allows",
            hint="wait until one ends, or cancel one: mathrag job list --state running",
        )
