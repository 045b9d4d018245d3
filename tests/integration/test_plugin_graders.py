"""Jobs that are graded by a plug-in: what they pin, how they are reported, and what is refused."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.calls import Request
from shared.plugins import loading
from shared.replies import Marked, Reply
from shared.shapes import State
from shared.storage.database import Database
from tests import plugins
from tests.integration.api import finished, serving
from tests.integration.scene import by_rule, furnish, rows
from tests.plugins import marking, restart

pytestmark = pytest.mark.anyio


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[plugins.Site]:
    made = plugins.site(tmp_path, monkeypatch)
    install(made, "fair", marking("fair", "return Marked(correct=True, score=0.5)").replace("mark)", "mark, 'luck')"))
    restart(monkeypatch)
    yield made
    loading._loaded = loading.Loaded()


def install(site: plugins.Site, name: str, source: str) -> None:
    site.install(name, source, kind="grader", value=f"plugin_{name}:GRADER")


def fairly(request: Request) -> Reply:
    return Marked(correct=True, score=0.5) if request.role == "grade" else by_rule(request)


async def test_a_dataset_may_declare_a_plugins_grader_which_its_jobs_pin(
    database: Database, redis_url: str, site: plugins.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await furnish(database)
    async with serving(database, redis_url) as api:
        uploaded = await api.upload("datasets", "fairs", [{"question": "Why?", "answer": "so"}], grader="fair")
        assert uploaded.status_code == 201, uploaded.text
        await api.job(dataset="fairs", corpus=None)
        await finished(database, fairly)
        report = await api.get("/v1/jobs/a-job/report")
        audit = await api.get("/v1/jobs/a-job/audit")
        [(digest, version, plugin)] = await rows(
            database,
            "SELECT m.digest, m.version, j.code -> 'plugins' -> 0 ->> 'hash' FROM jobs j"
            " JOIN models m ON m.id = CAST(j.pins -> 'grade' ->> 'model_id' AS integer)",
        )
        site.uninstall("mathrag-fair")
        restart(monkeypatch)
        after = await api.get("/v1/jobs/a-job/report")
        unable = await api.get("/v1/jobs/a-job/audit")
    assert (report["grader"], report["accuracy"]["value"], report["score"]["mean"]["value"]) == ("fair", 1.0, 0.5)
    assert report["score"]["name"] == "luck"
    assert audit["clean"]
    assert (digest, version) == (plugin, "mathrag-fair 1.0")
    assert after["accuracy"] == report["accuracy"]
    assert [each["message"] for each in unable["violations"] if each["invariant"] == "I18"] == [
        "its grader 'fair' is not installed as it was: audit it with mathrag-fair 1.0"
    ]


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        ("own", marking("own", "return None").replace('EXTRACTS["final"]', "print"), "its `extract` is a function of"),
        ("other", marking("another", "return None"), "it is called 'another', its entry point 'other'"),
        ("none", "GRADER = print", "it is no grader"),
        ("math", marking("math", "return None"), "is shipped with this program"),
    ],
)
async def test_a_grader_that_is_none_is_refused_at_upload_and_submission(
    database: Database,
    redis_url: str,
    site: plugins.Site,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    source: str,
    said: str,
) -> None:
    install(site, name, source)
    found = restart(monkeypatch)
    assert said in found[name].detail
    assert found["fair"].state is State.READY
    await furnish(database)
    async with serving(database, redis_url) as api:
        reply = await api.upload("datasets", "fairs", [{"question": "Why?", "answer": "so"}], grader=name)
        job = await api.http.post(
            "/v1/jobs",
            json={"name": "n", "dataset": "items", "pipeline": "closed-book", "params": {"grading": {"grader": name}}},
        )
    if name == "math":
        assert (reply.status_code, job.status_code) == (201, 202)
    else:
        assert (reply.status_code, job.status_code) == (422, 422)
        assert said in reply.json()["detail"]
        assert said in job.json()["detail"]
