"""Plug-ins: their pipelines, graders, models and prompts, what jobs pin of them, and what becomes of those jobs."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mathrag.check import NotReady
from mathrag.errors import Invalid, Unavailable
from services.guard.drivers.plugin import PluginDriver
from services.guard.drivers.ports import DriverError
from services.orchestrator import probes
from services.retriever.searches import identify_reranker
from shared.calls import Request
from shared.models import servers
from shared.models.embedding import ModelFailed
from shared.pipelines import registry
from shared.plugins import loading
from shared.replies import Marked, Reply
from shared.runtime.advance import Advancer
from shared.runtime.queue import lanes_with_work
from shared.settings import Embeddings, Model, Plugins, Reranker, Settings
from shared.shapes import Kind, PluginPin, State
from shared.storage.database import Database
from tests import plugins
from tests.integration.api import finished, serving
from tests.integration.scene import ScriptedExecutor, by_rule, drain, furnish, job_states, rows, submit_job
from tests.plugins import asking, marking, restart
from tests.unit.shared.test_plugins import prompt

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


# Jobs that are graded by a plug-in: what they pin, how they are reported, and what is refused.


@pytest.fixture
def grader_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[plugins.Site]:
    made = plugins.site(tmp_path, monkeypatch)
    install(made, "fair", marking("fair", "return Marked(correct=True, score=0.5)").replace("mark)", "mark, 'luck')"))
    restart(monkeypatch)
    yield made
    loading._loaded = loading.Loaded()


def install(grader_site: plugins.Site, name: str, source: str) -> None:
    grader_site.install(name, source, kind="grader", value=f"plugin_{name}:GRADER")


def fairly(request: Request) -> Reply:
    return Marked(correct=True, score=0.5) if request.role == "grade" else by_rule(request)


async def test_a_dataset_may_declare_a_plugins_grader_which_its_jobs_pin(
    database: Database, redis_url: str, grader_site: plugins.Site, monkeypatch: pytest.MonkeyPatch
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
        grader_site.uninstall("mathrag-fair")
        restart(monkeypatch)
        after = await api.get("/v1/jobs/a-job/report")
        unable = await api.get("/v1/jobs/a-job/audit")
    assert (report["grader"], report["accuracy"]["value"], report["score"]["mean"]["value"]) == ("fair", 1.0, 0.5)
    assert report["score"]["name"] == "luck"
    assert audit["clean"]
    assert (digest, version) == (plugin, "mathrag-fair 1.0")
    assert after["accuracy"] == report["accuracy"]
    assert [each["message"] for each in unable["violations"] if each["invariant"] == "I18"] == [
        "its grader 'fair' is not installed in that version: audit it with mathrag-fair 1.0"
    ]


@pytest.mark.parametrize(
    ("name", "source", "said"),
    [
        (
            "own",
            marking("own", "return None").replace('EXTRACTS["final"]', "print"),
            "its `extract` is its own function",
        ),
        ("other", marking("another", "return None"), "its `name` is 'another', but its entry point is 'other'"),
        ("none", "GRADER = print", "it is not a grader"),
        ("math", marking("math", "return None"), "is shipped with this program"),
    ],
)
async def test_a_grader_that_is_none_is_refused_at_upload_and_submission(
    database: Database,
    redis_url: str,
    grader_site: plugins.Site,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    source: str,
    said: str,
) -> None:
    install(grader_site, name, source)
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


# Readers, embedders, rerankers and drivers of plug-ins: their code is in every identity; their faults are typed.


MAKING = """
class Model:
    def __init__(self, *given):
        pass
    def {method}:
        {body}
run = Model
"""


@pytest.fixture
def model_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[plugins.Site]:
    forget()
    yield plugins.site(tmp_path, monkeypatch)
    forget()


def forget() -> None:
    loading.find_usable.cache_clear()
    loading.import_once.cache_clear()
    for module in [name for name in sys.modules if name.startswith("plugin_")]:
        del sys.modules[module]


def embedder(model_site: plugins.Site, name: str, body: str, version: str = "1.0") -> Embeddings:
    source = MAKING.format(method="encode(self, texts)", body=body)
    model_site.install(name, source, kind="embedder", version=version)
    return Embeddings(kind="plugin", plugin=name)


def test_an_embedders_code_is_part_of_its_signature(model_site: plugins.Site) -> None:
    settings = embedder(model_site, "letters", "return [[float(len(text)), 1.0] for text in texts]")
    with servers.open_embedder(settings) as made:
        first = made.signature
        assert made.dimension == 2
        assert made.embed_queries(["abc"])[0][0] == pytest.approx(3 / 10**0.5)
    with servers.open_embedder(settings.model_copy(update={"options": {"size": 3}})) as made:
        assert made.signature != first
    embedder(model_site, "letters", "return [[float(len(text)), 2.0] for text in texts]", "1.1")
    forget()
    with servers.open_embedder(settings) as made:
        assert made.signature != first


@pytest.mark.parametrize(
    "body",
    ["raise RuntimeError('no')", "return 'abc'", "return [['a']]", "return [[1.0], [2.0]]", "return [[1e999]]"],
)
def test_vectors_that_are_none_are_a_failure_in_words(model_site: plugins.Site, body: str) -> None:
    settings = embedder(model_site, "bad", body)
    with servers.open_embedder(settings) as made, pytest.raises(Exception, match="no embeddings: "):
        made.embed_queries(["a"])


def test_a_rerankers_code_is_its_identity_and_nonsense_is_refused(model_site: plugins.Site) -> None:
    source = MAKING.format(method="scores(self, question, documents)", body="return [0.5 for _ in documents]")
    model_site.install("half", source, kind="reranker")
    settings = Reranker(kind="plugin", plugin="half", activation="none")
    with servers.open_reranker(settings) as made:
        assert made is not None
        assert made.score("q", ["a", "b"]) == [0.5, 0.5]
    first = identify_reranker(settings)
    assert (first.digest, first.version) == (loading.find_usable(Kind.RERANKER, "half").pin.hash, "mathrag-half 1.0")
    model_site.install("half", source.replace("0.5", "'x'"), kind="reranker", version="1.1")
    forget()
    assert identify_reranker(settings).hash != first.hash
    with servers.open_reranker(settings) as made:
        assert made is not None
        with pytest.raises(ModelFailed, match="raised ValueError"):
            made.score("q", ["a"])


def test_a_plugin_that_is_not_there_is_named(model_site: plugins.Site) -> None:
    with pytest.raises(Unavailable, match="no plug-in is installed that adds the embedder 'letters'"):
        loading.find_usable(Kind.EMBEDDER, "letters")
    settings = embedder(model_site, "broken", "pass")
    (model_site.folder / "plugin_broken" / "__init__.py").write_text("raise SystemExit")
    with (
        pytest.raises(Unavailable, match="cannot be used: import failed: SystemExit"),
        servers.open_embedder(settings),
    ):
        pass


async def test_a_driver_of_a_plugin_fails_its_own_model_alone(model_site: plugins.Site) -> None:
    body = "raise KeyError('weights')"
    model_site.install(
        "slow", MAKING.format(method="identify(self)", body=body).replace("def id", "async def id"), kind="driver"
    )
    with pytest.raises(DriverError, match="raised KeyError: 'weights'"):
        await PluginDriver("m", Model(driver="plugin", plugin="slow"), Settings()).identify()
    with pytest.raises(
        DriverError, match="no plug-in is installed that adds the driver 'gone'; fix: mathrag plugin list"
    ):
        await PluginDriver("m", Model(driver="plugin", plugin="gone"), Settings()).identify()
    own = "from shared.runtime.pins import ModelIdentity; return ModelIdentity(name='x', backend='x', digest='d')"
    source = MAKING.format(method="identify(self)", body=own).replace("def id", "async def id")
    model_site.install("fast", source, kind="driver")
    found = await PluginDriver("m", Model(driver="plugin", plugin="fast"), Settings()).identify()
    assert (found.name, found.backend, found.digest) == ("m", "plugin fast", "d")
    assert found.options["plugin"]["hash"] == loading.find_usable(Kind.DRIVER, "fast").pin.hash


READERS = {
    "lines": ("for line in file: yield {'question': line.decode()}", 201, ""),
    "endless": ("while True: yield {'text': 'again'}", 413, "yields more than"),
    "long": ("yield {'text': 'a' * 10_000_000}", 422, "is longer than"),
    "raising": ("raise ValueError('page 7'); yield", 422, "raised ValueError: page 7"),
    "odd": ("yield 7", 422, "is int, not a mapping"),
    "hungry": ("yield {'text': 'a' * (4 << 30)}", 413, "MiB of memory to read"),
    "ending": ("import os; os._exit(3); yield", 422, "ended with exit status 3"),
}


async def test_a_reader_is_bounded_and_its_faults_are_the_uploads(
    database: Database, redis_url: str, model_site: plugins.Site
) -> None:
    limits = Settings().limits.model_copy(update={"decompressed_bytes": 100_000, "line_bytes": 10_000})
    async with serving(database, redis_url, Settings(database_url="unused", limits=limits)) as api:
        for name, (body, status, said) in READERS.items():
            source = f"def run(file):\n    {body}\n"
            model_site.install(name, source, kind="reader")
            reply = await api.http.post("/v1/datasets", params={"name": name, "reader": name}, content=b"a\nb\n")
            assert (name, reply.status_code) == (name, status), reply.text
            assert said in reply.text
        missing = await api.http.post("/v1/datasets", params={"name": "x", "reader": "gone"}, content=b"a\n")
        assert (missing.status_code, "no plug-in is installed that adds the reader 'gone'" in missing.text) == (
            422,
            True,
        )


# Prompts and rubrics of the operator's folders: jobs name them, keep what they are, and wait where they are others.

JOB = {"pipeline": "closed-book", "corpus": None}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugins]:
    plugins.site(tmp_path, monkeypatch)
    for folder, name, text in (("p", "terse.toml", prompt("terse", "Shortly: {{question}}")), ("r", "strict.txt", "A")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    (tmp_path / "p" / "needy.toml").write_text(
        'id = "needy"\nversion = 1\nrequired = ["question", "answer"]\ntext = "{{question}} {{answer}}"\n'
    )
    made = Plugins(templates=tmp_path / "p", rubrics=tmp_path / "r")
    restart(monkeypatch, made)
    yield made
    loading._loaded = loading.Loaded()


async def test_a_job_asks_with_its_own_prompt_and_waits_where_that_has_changed(
    database: Database, redis_url: str, settings: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.templates is not None
    await furnish(database, items=2)
    await submit_job(database, **JOB, params={"generate": {"template": "terse"}})  # type: ignore[arg-type]
    file = settings.templates / "terse.toml"
    before = file.read_text()
    file.write_text(prompt("terse", "Shorter: {{question}}"))
    restart(monkeypatch, settings)
    await drain(database, ScriptedExecutor())
    assert await job_states(database) == ["running"]
    async with serving(database, redis_url) as api:
        [away] = (await api.get("/v1/jobs/a-job"))["waiting"]
    assert "restore the file from `plugins.templates`, then restart the stack" in away["said"]
    file.write_text(before)
    restart(monkeypatch, settings)
    await finished(database)
    assert await job_states(database) == ["completed"]
    named = await rows(
        database,
        "SELECT DISTINCT convert_from(request, 'UTF8')::jsonb ->> 'template' FROM calls WHERE role = 'generate'",
    )
    assert [str(name).partition("@")[0] for (name,) in named] == ["terse"]
    async with serving(database, redis_url) as api:
        assert (await api.get("/v1/jobs/a-job/audit"))["clean"]


async def test_a_job_keeps_the_text_of_its_rubric(database: Database, settings: Plugins) -> None:
    await furnish(database, items=1)
    await submit_job(database, **JOB, params={"grading": {"grader": "rubric", "rubric": "@strict"}})  # type: ignore[arg-type]
    [(rubric,)] = await rows(database, "SELECT convert_from(params, 'UTF8')::jsonb -> 'grading' ->> 'rubric' FROM jobs")
    assert rubric == "A"


async def test_what_is_not_in_the_folders_is_refused(
    database: Database, settings: Plugins, subtests: pytest.Subtests
) -> None:
    await furnish(database, items=1)
    for params, said in (
        ({"generate": {"template": "gone"}}, "no prompt 'gone'"),
        ({"generate": {"template": "../secret"}}, "no prompt '../secret'"),
        ({"generate": {"template": "critic"}}, "no prompt 'critic'"),
        ({"generate": {"template": "needy"}}, "prompt 'needy' needs answer"),
        ({"grading": {"rubric": "@gone"}}, "no rubric 'gone' is in the folder `plugins.rubrics`"),
        ({"grading": {"rubric": "@../p/terse"}}, "no rubric '../p/terse'"),
    ):
        with subtests.test(params=params), pytest.raises(Invalid, match=said):
            await submit_job(database, **JOB, params=params)  # type: ignore[arg-type]
