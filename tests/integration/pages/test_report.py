"""A job's report as a page."""

import pytest

from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.pages import browsing

pytestmark = pytest.mark.anyio


async def test_a_report_begins_with_what_was_found_and_says_what_it_cost(api: Api, database: Database) -> None:
    await api.job("dense", name="first")
    await finished(database)
    found = await api.get("/v1/jobs/first/report")
    page = await browsing.text(api, "/jobs/first/report")
    right = found["accuracy"]
    assert f"<h1>{100 * right['value']:.1f} % right" in page
    assert f"{right['correct']} of {right['graded']}</h1>" in page
    assert "mathrag report bundle first" in page
    assert f'href="/v1/jobs/{found["id"]}/report"' in page


async def test_a_job_that_has_not_ended_has_a_report_so_far(api: Api, database: Database) -> None:
    await api.job("dense", name="first")
    page = await browsing.text(api, "/jobs/first/report")
    assert "<h1>Nothing was graded</h1>" in page


async def test_there_is_no_report_of_an_unknown_job(api: Api) -> None:
    assert (await browsing.look(api, "/jobs/nobody/report")).status_code == 404


async def test_names_of_subjects_are_text(api: Api, database: Database) -> None:
    lines = [{"question": "What is 1+1?", "gold": "2", "subject": "<script>alert(1)</script>"}]
    assert (await api.upload("datasets", "hostile", lines)).status_code == 201
    await api.job("closed-book", name="first", dataset="hostile", corpus=None)
    await finished(database)
    page = await browsing.text(api, "/jobs/first/report")
    assert "<script>alert" not in page
    assert scene.SETTINGS.roles["generate"] in page
