"""Jobs of plug-ins: what they pin, and what becomes of them when a plug-in changes or goes while they run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from services.orchestrator import probes
from shared.check import NotReady
from shared.errors import Invalid
from shared.pipelines import registry
from shared.plugins import loading
from shared.runtime.advance import Advancer
from shared.runtime.queue import lanes_with_work
from shared.shapes import PluginPin
from shared.storage.database import Database
from tests import plugins
from tests.integration.api import finished, serving
from tests.integration.scene import ScriptedExecutor, drain, furnish, job_states, rows, submit_job
from tests.plugins import asking, restart

pytestmark = pytest.mark.anyio


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[plugins.Site]:
    made = plugins.site(tmp_path, monkeypatch)
    made.install("asking")
    restart(monkeypatch)
    yield made
    loading._loaded = loading.Loaded()


async def pinned(database: Database) -> list[PluginPin]:
    [(code,)] = await rows(database, "SELECT code FROM jobs ORDER BY id LIMIT 1")
    return [PluginPin(**each) for each in code["plugins"]]  # type: ignore[index]


async def half_way(database: Database) -> None:
    await furnish(database, items=2)
    await submit_job(database, "asking", name="theirs", corpus=None)
    await submit_job(database, "closed-book", name="ours", corpus=None)
    await Advancer(database).advance()


async def test_a_job_pins_its_plugin_and_says_where_its_pipeline_comes_from(
    database: Database, redis_url: str, site: plugins.Site
) -> None:
    await furnish(database, items=2)
    async with serving(database, redis_url) as api:
        await api.job("asking", corpus=None)
        await finished(database)
        record = (await api.http.get("/v1/jobs/a-job/provenance")).text.splitlines()[0]
        listed = {each["name"]: each["plugin"] for each in await api.get("/v1/pipelines")}
        audit = await api.get("/v1/jobs/a-job/audit")
        page = (await api.http.get("/pipelines/asking")).text
        [plugin] = await api.get("/v1/plugins")
    [pin] = await pinned(database)
    assert (pin.name, pin.distribution, pin.version) == ("asking", "mathrag-asking", "1.0")
    assert loading.list_usable_pins() == [pin]
    assert pin.hash in record
    assert listed["asking"]["distribution"] == "mathrag-asking"
    assert listed["dense"] is None
    assert (audit["clean"], audit["source_changed"]) == (True, None)
    assert "mathrag-asking 1.0" in page
    assert (plugin["state"], plugin["hash"], plugin["jobs"]) == ("ready", pin.hash, [])


@pytest.mark.parametrize("change", ["uninstalled", "upgraded", "broken"])
async def test_a_job_whose_plugin_is_another_one_waits_and_goes_on_when_it_is_back(
    database: Database, redis_url: str, site: plugins.Site, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    await half_way(database)
    match change:
        case "uninstalled":
            site.uninstall("mathrag-asking")
        case "upgraded":
            site.install("asking", asking("asking", "Once more: "), version="1.1")
        case _:
            site.install("asking", "raise ValueError('no')", version="1.1")
    restart(monkeypatch)
    await drain(database, ScriptedExecutor())
    assert await job_states(database) == ["running", "completed"]
    assert not await lanes_with_work(database)
    async with serving(database, redis_url) as api:
        [away] = (await api.get("/v1/jobs/theirs"))["waiting"]
        assert away["what"].startswith("plug-in pipeline asking (mathrag-asking 1.0, ")
        assert "install mathrag-asking 1.0 again, then restart the stack; or cancel the job" in away["said"]
        missing = (await api.get("/v1/plugins"))[-1]
        assert (missing["state"], missing["version"], missing["jobs"]) == ("missing", "1.0", ["theirs"])
        with pytest.raises(NotReady, match="job theirs waits for pipeline asking") as found:
            await probes.check_needed(api.app.state.deps)
        assert found.value.fix.startswith("pip install mathrag-asking==1.0, then restart")
    site.install("asking")
    restart(monkeypatch)
    await drain(database, ScriptedExecutor())
    assert await job_states(database) == ["completed", "completed"]


async def test_a_submission_is_refused_with_what_is_wrong_with_the_plugin(
    database: Database, site: plugins.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.install("broken", "raise ValueError('no')")
    restart(monkeypatch)
    await furnish(database)
    with pytest.raises(Invalid, match=r"plug-in 'broken' of mathrag-broken 1\.0 cannot be used: import failed: Value"):
        await submit_job(database, "broken")


async def test_the_audit_of_a_job_names_the_other_code_of_its_plugin(
    database: Database, redis_url: str, site: plugins.Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await furnish(database, items=2)
    await submit_job(database, "asking", corpus=None)
    await finished(database)
    before = registry.pipeline_hash("asking")
    site.install("asking", asking("asking", summary="In other words."), version="1.1")
    restart(monkeypatch)
    async with serving(database, redis_url) as api:
        changed = await api.get("/v1/jobs/a-job/audit")
        site.uninstall("mathrag-asking")
        restart(monkeypatch)
        gone = await api.get("/v1/jobs/a-job/audit")
    assert changed["clean"]
    assert changed["source_changed"].startswith(
        f"pipeline changed: the job ran version {before[:12]} of `asking`, this"
    )
    assert [each["message"] for each in gone["violations"] if each["invariant"] == "I18"] == [
        "its pipeline 'asking' is not installed: audit it with mathrag-asking 1.0"
    ]


@pytest.mark.parametrize("yielded", ["42", "['text']"])
async def test_a_pipeline_that_yields_nonsense_later_fails_its_own_samples(
    database: Database, site: plugins.Site, monkeypatch: pytest.MonkeyPatch, yielded: str
) -> None:
    source = asking("asking").replace("    return", f"    if sample.item.ordinal == 1: yield {yielded}\n    return")
    site.install("asking", source, version="2.0")
    restart(monkeypatch)
    await half_way(database)
    await drain(database, ScriptedExecutor())
    assert await job_states(database) == ["completed", "completed"]
    assert await rows(database, "SELECT failure FROM samples ORDER BY id") == [
        (None,), ("pipeline_error",), (None,), (None,)
    ]  # fmt: skip
