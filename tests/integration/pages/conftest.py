"""The pages over a real database, where no keys are asked for and where they are."""

from collections.abc import AsyncIterator

import pytest

from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving
from tests.integration.test_access import KEYED


@pytest.fixture
async def keyed(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database)
    async with serving(database, redis_url, KEYED) as keyed_api:
        yield keyed_api
