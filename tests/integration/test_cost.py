"""What a job costs, of the rows of its calls and the prices that are configured when its report is asked for."""

from collections.abc import Mapping
from typing import Any

import pytest

from shared.settings import Model, TokenPrice
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import finished, serving
from tests.integration.conftest import Plant

pytestmark = pytest.mark.anyio

JUDGE = TokenPrice(prompt=2.0, completion=10.0)
GENERATOR = TokenPrice(prompt=0.5, completion=4.0)
JUDGED = {"quality": "judge"}
COUNTED = "UPDATE attempts SET prompt_tokens = 1000, completion_tokens = 100"
"""Made-up tokens of every call."""


async def reports(
    database: Database, redis_url: str, plant: Plant, prices: Mapping[str, TokenPrice], counted: str = COUNTED
) -> list[Any]:
    models = {name: Model(driver="scripted", price=prices.get(name)) for name in ("a-judge", "a-generator")}
    await scene.furnish(database)
    settings = scene.SETTINGS.model_copy(update={"models": models})
    async with serving(database, redis_url, settings) as api:
        for name in ("one", "two"):
            await api.job("mathrag-gate", name=name, params=JUDGED)
            await finished(database)
        await plant(counted)
        return [await api.get(f"/v1/jobs/{name}/report") for name in ("one", "two")]


async def test_a_job_costs_its_tokens_at_the_configured_prices(
    database: Database, redis_url: str, plant: Plant
) -> None:
    first, second = await reports(database, redis_url, plant, {"a-judge": JUDGE, "a-generator": GENERATOR})
    # A call of the judge: 1000 x 2.0 + 100 x 10.0 millionths; of the generator: 1000 x 0.5 + 100 x 4.0.
    judged = first["calls_made"]["judge"] * 0.003
    generated = first["calls_made"]["generate"] * 0.0009
    assert generated > 0
    assert first["cost"]["made"] == pytest.approx(judged + generated)
    assert first["cost"]["all"] == pytest.approx(judged + generated)
    assert first["cost"]["models"] == pytest.approx({"a-judge": judged, "a-generator": generated})
    assert second["cost"]["made"] == 0
    assert second["cost"]["all"] == pytest.approx(judged + generated)
    assert first["stages"]["judge"]["prompt_tokens"] == 1000 * first["calls_made"]["judge"]


async def test_a_model_without_a_price_leaves_the_cost_unknown(
    database: Database, redis_url: str, plant: Plant
) -> None:
    first, _ = await reports(database, redis_url, plant, {"a-judge": JUDGE})
    assert (first["cost"]["made"], first["cost"]["all"], first["cost"]["models"]["a-generator"]) == (None, None, None)
    assert first["cost"]["models"]["a-judge"] == pytest.approx(first["calls_made"]["judge"] * 0.003)


async def test_a_job_that_made_no_call_of_an_unpriced_model_does_not_cost_nothing(
    database: Database, redis_url: str, plant: Plant
) -> None:
    _, second = await reports(database, redis_url, plant, {})
    assert (second["cost"]["made"], second["cost"]["all"]) == (None, None)


async def test_replies_without_token_counts_leave_the_cost_unknown(
    database: Database, redis_url: str, plant: Plant
) -> None:
    prices = {"a-judge": JUDGE, "a-generator": GENERATOR}
    uncounted = "UPDATE attempts SET prompt_tokens = NULL, completion_tokens = NULL"
    first, _ = await reports(database, redis_url, plant, prices, uncounted)
    assert first["cost"] == {"made": None, "all": None, "models": {"a-judge": None, "a-generator": None}}


async def test_a_job_that_no_model_has_answered_has_no_cost(database: Database, redis_url: str) -> None:
    await scene.furnish(database)
    async with serving(database, redis_url) as api:
        await api.job(name="one")
        assert (await api.get("/v1/jobs/one/report"))["cost"] is None
