"""What a job costs: the plan beside what it took."""

import re

import pytest

from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.pages.browsing import look, text

pytestmark = pytest.mark.anyio


def cells(page: str) -> dict[str, list[str]]:
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', page, re.DOTALL)
    return {name: re.findall(r"<td[^>]*>(.*?)</td>", row, re.DOTALL) for name, row in rows}


async def test_the_plan_stands_beside_what_the_job_took(api: Api, database: Database) -> None:
    await api.job("mathrag-gate", params={"gate": {"min_pairs": 5}})
    await finished(database)
    report = await api.get("/v1/jobs/a-job/report")
    found = cells(await text(api, "/jobs/a-job/price"))
    assert found["Model loads"][1] == str(report["model_loads"])
    assert found["Generate calls"] == ["5", "5"]
    assert found["Judge calls"][1] == str(report["calls_made"]["judge"])
    assert int(found["Judge calls"][0]) >= report["calls_made"]["judge"]


async def test_what_was_reused_is_told_apart(api: Api, database: Database) -> None:
    await api.job("closed-book")
    await finished(database)
    await api.job("closed-book")
    await finished(database)
    assert cells(await text(api, "/jobs/a-job-2/price"))["Generate calls"] == ["5", "0 + 5 reused"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("UPDATE jobs SET params = '[1]'", "cannot be read by this release"),
        ("UPDATE datasets SET name = 'gone'", ""),
        ("UPDATE jobs SET pipeline = 'mine-rules'", "cannot be planned on its own"),
    ],
)
async def test_what_the_job_took_is_shown_where_no_plan_can_be_made(
    api: Api, database: Database, change: str, said: str
) -> None:
    await api.job("closed-book")
    await finished(database)
    await scene.run_sql(database, change)
    page = await text(api, "/jobs/a-job/price")
    assert cells(page)["Generate calls"][1] == "5"
    assert said in page


async def test_a_job_without_calls_has_a_price_page_and_an_unknown_one_has_none(api: Api) -> None:
    await api.job("closed-book")
    assert cells(await text(api, "/jobs/a-job/price"))["Model loads"][1] == "0"
    assert (await look(api, "/jobs/other/price")).status_code == 404
