import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.guard.drivers.plugin import PluginDriver
from services.guard.drivers.ports import DriverError
from services.retriever.searches import identify_reranker
from shared.errors import Invalid, Unavailable
from shared.models import servers
from shared.models.embedding import ModelFailed
from shared.plugins import loading
from shared.settings import Embeddings, Model, Plugins, Reranker, Settings
from shared.shapes import Kind
from shared.storage.database import Database
from tests import plugins
from tests.integration.api import finished, serving
from tests.integration.scene import ScriptedExecutor, drain, furnish, job_states, rows, submit_job
from tests.plugins import restart
from tests.unit.shared.test_plugins import prompt

# Readers, embedders, rerankers and drivers of plug-ins: their code is in every identity; their faults are typed.


pytestmark = pytest.mark.anyio

MAKING = """
class Model:
    def __init__(self, *given):
        pass
    def {method}:
        {body}
run = Model
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[plugins.Site]:
    forget()
    yield plugins.site(tmp_path, monkeypatch)
    forget()


def forget() -> None:
    loading.find_usable.cache_clear()
    loading._import.cache_clear()
    for module in [name for name in sys.modules if name.startswith("plugin_")]:
        del sys.modules[module]


def embedder(site: plugins.Site, name: str, body: str, version: str = "1.0") -> Embeddings:
    source = MAKING.format(method="encode(self, texts)", body=body)
    site.install(name, source, kind="embedder", version=version)
    return Embeddings(kind="plugin", plugin=name)


def test_an_embedders_code_is_part_of_its_signature(site: plugins.Site) -> None:
    settings = embedder(site, "letters", "return [[float(len(text)), 1.0] for text in texts]")
    with servers.open_embedder(settings) as made:
        first = made.signature
        assert made.dimension == 2
        assert made.embed_queries(["abc"])[0][0] == pytest.approx(3 / 10**0.5)
    with servers.open_embedder(settings.model_copy(update={"options": {"size": 3}})) as made:
        assert made.signature != first
    embedder(site, "letters", "return [[float(len(text)), 2.0] for text in texts]", "1.1")
    forget()
    with servers.open_embedder(settings) as made:
        assert made.signature != first


@pytest.mark.parametrize(
    "body",
    ["raise RuntimeError('no')", "return 'abc'", "return [['a']]", "return [[1.0], [2.0]]", "return [[1e999]]"],
)
def test_vectors_that_are_none_are_a_failure_in_words(site: plugins.Site, body: str) -> None:
    settings = embedder(site, "bad", body)
    with servers.open_embedder(settings) as made, pytest.raises(Exception, match="no embeddings: "):
        made.embed_queries(["a"])


def test_a_rerankers_code_is_its_identity_and_nonsense_is_refused(site: plugins.Site) -> None:
    source = MAKING.format(method="scores(self, question, documents)", body="return [0.5 for _ in documents]")
    site.install("half", source, kind="reranker")
    settings = Reranker(kind="plugin", plugin="half", activation="none")
    with servers.open_reranker(settings) as made:
        assert made is not None
        assert made.score("q", ["a", "b"]) == [0.5, 0.5]
    first = identify_reranker(settings)
    assert (first.digest, first.version) == (loading.find_usable(Kind.RERANKER, "half").pin.hash, "mathrag-half 1.0")
    site.install("half", source.replace("0.5", "'x'"), kind="reranker", version="1.1")
    forget()
    assert identify_reranker(settings).hash != first.hash
    with servers.open_reranker(settings) as made:
        assert made is not None
        with pytest.raises(ModelFailed, match="raised ValueError"):
            made.score("q", ["a"])


def test_a_plugin_that_is_not_there_is_named(site: plugins.Site) -> None:
    with pytest.raises(Unavailable, match="no plug-in is installed that adds the embedder 'letters'"):
        loading.find_usable(Kind.EMBEDDER, "letters")
    settings = embedder(site, "broken", "pass")
    (site.folder / "plugin_broken" / "__init__.py").write_text("raise SystemExit")
    with (
        pytest.raises(Unavailable, match="cannot be used: import failed: SystemExit"),
        servers.open_embedder(settings),
    ):
        pass


async def test_a_driver_of_a_plugin_fails_its_own_model_alone(site: plugins.Site) -> None:
    body = "raise KeyError('weights')"
    site.install(
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
    site.install("fast", source, kind="driver")
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
    database: Database, redis_url: str, site: plugins.Site
) -> None:
    limits = Settings().limits.model_copy(update={"decompressed_bytes": 100_000, "line_bytes": 10_000})
    async with serving(database, redis_url, Settings(database_url="unused", limits=limits)) as api:
        for name, (body, status, said) in READERS.items():
            source = f"def run(file):\n    {body}\n"
            site.install(name, source, kind="reader")
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
    assert "put the file back as it was in `plugins.templates`, then restart the stack" in away["said"]
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


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"generate": {"template": "gone"}}, "no prompt 'gone' is in the folder `plugins.templates`"),
        ({"generate": {"template": "../secret"}}, "no prompt '../secret'"),
        ({"generate": {"template": "critic"}}, "no prompt 'critic'"),
        ({"generate": {"template": "needy"}}, r"prompt 'needy' needs \['answer'\]"),
        ({"grading": {"rubric": "@gone"}}, "no rubric 'gone' is in the folder `plugins.rubrics`"),
        ({"grading": {"rubric": "@../p/terse"}}, "no rubric '../p/terse'"),
    ],
)
async def test_what_is_not_in_the_folders_is_refused(
    database: Database, settings: Plugins, params: dict[str, object], said: str
) -> None:
    await furnish(database, items=1)
    with pytest.raises(Invalid, match=said):
        await submit_job(database, **JOB, params=params)  # type: ignore[arg-type]
