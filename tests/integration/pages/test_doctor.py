"""Whether jobs can run, as a page."""

import pytest

from shared.shapes import Scope
from shared.storage.database import Database
from tests.integration.api import Api
from tests.integration.pages import browsing

pytestmark = pytest.mark.anyio


async def test_what_is_not_well_stands_first_with_what_to_do(api: Api) -> None:
    page = await browsing.text(api, "/doctor")
    found = browsing.rows(page)
    wrong = [row for row in found if row.startswith("✗")]
    assert f"<h1>{len(wrong)} of {len(found)} checks need attention</h1>" in page
    assert found[: len(wrong)] == wrong
    assert any(row.startswith("✗ judge worker") and "start" in row for row in wrong)
    assert any(row.startswith("✓ postgres") for row in found)


async def test_everything_is_looked_at_for_operators_alone(keyed: Api, database: Database) -> None:
    await browsing.sign_in(keyed, database, Scope.READ)
    assert "/doctor/everything" not in await browsing.text(keyed, "/doctor")
    assert (await browsing.look(keyed, "/doctor/everything")).status_code == 403
    await browsing.sign_in(keyed, database, Scope.READ, Scope.OPERATE)
    assert len(browsing.rows(await browsing.text(keyed, "/doctor/everything"))) > len(
        browsing.rows(await browsing.text(keyed, "/doctor"))
    )
