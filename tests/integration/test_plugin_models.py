"""Readers, embedders, rerankers and drivers of plug-ins: their code is in every identity; their faults are typed."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.guard.drivers.plugin import PluginDriver
from services.guard.drivers.ports import DriverError
from services.retriever.searches import identify_reranker
from shared.errors import Unavailable
from shared.models import servers
from shared.models.embedding import ModelFailed
from shared.plugins import loading
from shared.settings import Embeddings, Model, Reranker, Settings
from shared.shapes import Kind
from shared.storage.database import Database
from tests import plugins
from tests.integration.api import serving

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
