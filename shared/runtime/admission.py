"""Limits on new jobs: how many may live at once, and how large one may be."""

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from shared.contracts.calls import MOST_SLOTS
from shared.contracts.params import Params
from shared.errors import Invalid, TooLarge, TooMany
from shared.limits import Limits

LIVE = text("SELECT count(*) FROM (SELECT FROM jobs WHERE ended_at IS NULL LIMIT :most) live")


def check_calibration(params: Params, items: int, documents: int) -> None:
    """Check that one step can hold the calibration's ratings for a dataset and a corpus of these sizes.

    Raises:
        Invalid: there may be too many ratings; the message has both numbers.
    """
    gate = params.gate
    rated = min(min(gate.items, items) * min(gate.top, params.candidates), gate.max_documents, documents)
    ratings = rated * (gate.repeats + (gate.truth == "verifier"))
    if params.quality == "gate" and ratings > MOST_SLOTS:
        raise Invalid(
            f"`params.gate`: the calibration asks for up to {ratings} ratings at once; a step holds {MOST_SLOTS} calls",
            hint="lower `gate.repeats` or `gate.max_documents`",
        )


async def admit(connection: AsyncConnection, limits: Limits, samples: Sequence[int]) -> None:
    """Check that jobs with these numbers of samples may be inserted.

    Concurrent submissions may exceed the limit slightly. It protects the service and is not a quota: an exact count
    would make every submission wait for a large one beside it.

    Raises:
        TooLarge: a job has too many samples, or there are more jobs than may ever live at once.
        TooMany: too many jobs are live already.
    """
    if max(samples) > limits.samples:
        raise TooLarge(
            f"items times repeats are {max(samples)} samples, more than `limits.samples` allows ({limits.samples})",
            hint="fewer repeats, or several datasets",
        )
    if len(samples) > limits.live_jobs:
        raise TooLarge(
            f"{len(samples)} jobs at once are more than `limits.live_jobs` allows ({limits.live_jobs})",
            hint="a smaller grid, or several experiments one after the other",
        )
    live = (await connection.execute(LIVE, {"most": limits.live_jobs})).scalar_one()
    if live + len(samples) > limits.live_jobs:
        raise TooMany(
            f"{live} jobs have not ended; {len(samples)} more are too many for `limits.live_jobs` ({limits.live_jobs})",
            hint="wait until one ends, or cancel one: mathrag job list --state running",
        )
