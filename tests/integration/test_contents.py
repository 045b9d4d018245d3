"""Datasets and corpora are looked into page by page, and deleted only where no job needs them."""

import pytest

from shared.errors import Conflict, NotFound
from shared.runtime import purge as purging
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant

pytestmark = pytest.mark.anyio


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database)
    await scene.run_sql(
        database,
        "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash)"
        " SELECT c.id, n - 1, 'doc-' || n, d.hash"
        " FROM corpora c, (SELECT hash, row_number() OVER (ORDER BY hash) n FROM documents) d",
    )
    return empty_api


async def test_a_dataset_is_read_page_by_page(api: Api) -> None:
    first = await api.get("/v1/datasets/items/items", limit=3)
    rest = await api.get("/v1/datasets/items/items", limit=3, cursor=first["next_cursor"])
    rows = [*first["data"], *rest["data"]]
    assert [row["index"] for row in rows] == [0, 1, 2, 3, 4]
    assert (rows[2]["question"], rows[2]["gold"], rest["next_cursor"]) == ("What is 2 plus 2?", "4", None)
    wrong = await api.http.get("/v1/corpora/docs/documents", params={"cursor": first["next_cursor"]})
    assert wrong.status_code == 400


async def test_a_corpus_is_read_page_by_page(api: Api) -> None:
    first = await api.get("/v1/corpora/docs/documents", limit=15)
    rest = await api.get("/v1/corpora/docs/documents", limit=15, cursor=first["next_cursor"])
    assert [row["id"] for row in [*first["data"], *rest["data"]]] == [f"doc-{number}" for number in range(1, 21)]
    assert (await api.http.get("/v1/corpora/none/documents")).status_code == 404


async def test_wrong_answers_are_listed_alone(api: Api, database: Database, plant: Plant) -> None:
    await api.job()
    await finished(database)
    await plant("UPDATE outcomes SET correct = s.ordinal = 2 FROM samples s WHERE s.id = sample_id")
    listed = (await api.get("/v1/jobs/a-job/samples"))["data"]
    wrong = (await api.get("/v1/jobs/a-job/samples", wrong="true"))["data"]
    assert {row["correct"] for row in listed} == {True, False}
    assert [row["index"] for row in wrong] == [row["index"] for row in listed if row["correct"] is False]


async def test_what_a_live_job_uses_is_not_deleted(api: Api, owner: Database) -> None:
    await api.job("hybrid", name="alive")
    for kind, name in (("dataset", "items"), ("corpus", "docs")):
        with pytest.raises(Conflict, match=r"live jobs: alive \(running\)"):
            await purging.delete(owner, kind, name, "a-test")  # type: ignore[arg-type]


async def test_a_fallback_corpus_stays_while_a_job_may_search_it(api: Api, owner: Database, database: Database) -> None:
    await api.job("crag", name="falls-back", corpus="docs", params={"crag": {"fallback": "docs"}})
    await scene.run_sql(database, "UPDATE jobs SET corpus_id = NULL")
    with pytest.raises(Conflict, match="falls-back"):
        await purging.delete(owner, "corpus", "docs", "a-test")
    assert (await purging.delete_unused(owner, "a-test"))["corpora"] == []


async def test_what_an_ended_job_was_made_from_stays_until_it_is_purged(
    api: Api, owner: Database, database: Database
) -> None:
    await api.job()
    await finished(database)
    with pytest.raises(Conflict, match=r"reports of ended jobs: a-job \(completed\)"):
        await purging.delete(owner, "dataset", "items", "a-test")
    for job in await purging.find_jobs(owner, ["a-job"]):
        await purging.purge(owner, job, "a-test")
    await purging.delete(owner, "dataset", "items", "a-test")
    assert (await api.http.get("/v1/datasets/items")).status_code == 404
    done = await scene.rows(database, "SELECT actor, action, target FROM operations ORDER BY id DESC LIMIT 1")
    assert done == [("a-test", "delete", "dataset items")]


async def test_a_name_that_is_not_there_is_not_deleted(api: Api, owner: Database) -> None:
    with pytest.raises(NotFound) as refused:
        await purging.delete(owner, "corpus", "dcos", "a-test")
    assert "did you mean 'docs'?" in str(refused.value.hint)
