"""The audit of a job as a page: the verdict, what was checked, what was found and where."""

import pytest

from services.orchestrator.web.job import write_audit_headline
from shared.audit import Violation, list_invariants
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant
from tests.integration.pages.browsing import look, rows, text

pytestmark = pytest.mark.anyio


async def test_a_clean_job_is_said_to_be_clean_with_all_that_was_checked(api: Api, database: Database) -> None:
    await api.job("closed-book")
    await finished(database)
    page = await text(api, "/jobs/a-job/audit")
    assert "<h1>Clean: the rows satisfy every invariant</h1>" in page
    assert page.count("✓ holds") == len(list_invariants()) == 16
    assert "No two residencies of a device that the job used overlap in time" in page
    assert "mathrag audit a-job" in page


async def test_a_violation_is_a_row_with_its_samples(api: Api, database: Database, plant: Plant) -> None:
    job = await api.job("closed-book")
    await finished(database)
    await plant("UPDATE outcomes SET answer = '<script>', correct = true")
    found = (await api.get("/v1/jobs/a-job/audit"))["violations"]
    page = await text(api, "/jobs/a-job/audit")
    assert len(rows(page)) == len(found) > 0
    broken = " and ".join(sorted({each["invariant"] for each in found}))
    assert f"violations: {broken}</h1>" in page or f"violation: {broken}</h1>" in page
    assert f'href="/jobs/{job["id"]}/samples/0"' in page
    assert "<script>alert" not in page
    assert page.count("✗") == len({each["invariant"] for each in found})


async def test_a_job_that_runs_is_audited_as_far_as_it_is(api: Api) -> None:
    await api.job("closed-book")
    assert "has not ended" in await text(api, "/jobs/a-job/audit")
    assert (await look(api, "/jobs/other/audit")).status_code == 404


async def test_an_unreadable_job_is_not_called_clean(api: Api, database: Database) -> None:
    await api.job("closed-book")
    await finished(database)
    await scene.run_sql(database, "UPDATE jobs SET params = '[1]'")
    page = await text(api, "/jobs/a-job/audit")
    assert "Clean" not in page
    assert "cannot be read by this release" in page or "could not be checked" in page


def test_the_headline_tells_violations_from_a_changed_pipeline() -> None:
    broken = Violation(invariant="I13", message="m", rows=("samples 1",))
    unreplayed = Violation(invariant="I18", message="m", rows=("samples 1",), source_changed=True)
    other = Violation(invariant="I2", message="m", rows=("attempts 1",))
    assert write_audit_headline([broken, other]) == "2 violations: I2 and I13"
    assert write_audit_headline([unreplayed]) == "1 outcome could not be replayed: the pipeline has changed"
    assert write_audit_headline([broken, unreplayed]).startswith("1 violation: I13; 1 outcome ")
