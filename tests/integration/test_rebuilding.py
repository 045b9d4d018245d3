"""An index whose files are gone comes back by the upload that made it."""

import pytest

from shared.storage.database import Database
from tests.integration.api import serving
from tests.integration.scene import furnish, run_sql

pytestmark = pytest.mark.anyio
POINTED = """
    UPDATE corpora SET dense_index = d.dense_index, sparse_index = d.sparse_index
    FROM corpora d WHERE d.name = 'docs' AND corpora.name = 'mine'"""


async def test_the_same_upload_again_has_the_files_of_its_indexes_looked_at(database: Database, redis_url: str) -> None:
    await furnish(database)
    async with serving(database, redis_url) as api:
        assert (await api.upload("corpora", "mine", [{"text": "A passage."}])).status_code == 201
        await run_sql(database, POINTED)
        assert (await api.upload("corpora", "mine", [{"text": "A passage."}])).status_code == 200
        assert len(api.asked) == 2
