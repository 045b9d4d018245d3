"""The judge is asked again, and the report says whether it repeated itself."""

import pytest

from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished

pytestmark = pytest.mark.anyio


async def test_a_calibration_that_rates_twice_says_how_repeatable_the_judge_is(api: Api, database: Database) -> None:
    job = await api.job("mathrag-gate", params={"gate": {"min_pairs": 5, "tau": -1, "repeats": 2}})
    await finished(database)
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    found = report["repeatability"]
    asked = report["gate"]["asked"]
    assert (found["documents"], found["draws"], found["temperature"], found["unrated"]) == (asked, 2, 0.1, 0)
    assert sum(map(sum, found["table"])) == asked
    assert found["same"]["value"] == found["agreement"] == sum(found["table"][n][n] for n in range(5)) / asked
    again = await api.job("mathrag-gate", name="once", params={"gate": {"min_pairs": 5, "tau": -1}})
    await finished(database)
    once = await api.get(f"/v1/jobs/{again['id']}/report")
    assert once["repeatability"] is None
    assert (once["gate"], once["calls_made"]["judge"]) == (report["gate"], 0)


async def test_a_job_that_computes_every_repeat_anew_compares_its_ratings(api: Api, database: Database) -> None:
    job = await api.job("mathrag-gate", repeats=3, reuse="none", params={"quality": "judge"})
    await finished(database)
    found = (await api.get(f"/v1/jobs/{job['id']}/report"))["repeatability"]
    documents = await scene.scalar(
        database,
        "SELECT count(DISTINCT convert_from(request, 'UTF8')::jsonb #>> '{values,document}') FROM calls"
        " WHERE role = 'judge'",
    )
    assert (found["documents"], found["draws"]) == (documents, 3)
    assert sum(map(sum, found["table"])) == 3 * found["documents"]


async def test_a_judge_that_every_repeat_asks_anew_is_compared_and_all_else_is_shared(
    api: Api, database: Database
) -> None:
    params = {"quality": "judge", "judge": {"per_repeat": True}}
    job = await api.job("mathrag-gate", repeats=3, params=params)
    await finished(database)
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    found, made = report["repeatability"], report["calls_made"]
    assert (found["draws"], made["judge"], made["retrieve"]) == (3, 3 * found["documents"], 10)
    assert report["settings"]["drawn"] == ["judge"]
    assert any("the judge model, asked anew in each" in note for note in report["notes"])
    once = await api.job("mathrag-gate", name="once", params={"quality": "judge"})
    await finished(database)
    assert (await api.get(f"/v1/jobs/{once['id']}/report"))["calls_made"]["judge"] == 0
