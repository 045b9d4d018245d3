"""The judge that knows the truth, asked the way the guard asks a remote model."""

from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mathrag.demo.world import GRADES, Document, GeneratedCorpus, build, write
from services.guard.drivers.remote import RemoteDriver
from shared.calls import Decoding
from shared.models.chat import ChatFailed
from shared.rag.prompts import parse_rating, render, template
from shared.replies import Document as Served
from shared.replies import Rated
from shared.settings import Device, Model
from tests.doubles.asgi_server import serve_app
from tools.world.oracle import create_app, rate, truth, write_document

pytestmark = pytest.mark.anyio

DECODING = Decoding(temperature=0.1, max_tokens=10)
DOCUMENTS = [f"Problem: {number}\nSolution: {number}" for number in range(4000)]


@pytest.fixture(scope="module")
def corpus() -> GeneratedCorpus:
    return build(101)


@pytest.fixture
async def url(corpus: GeneratedCorpus, tmp_path: Path) -> AsyncIterator[str]:
    write(corpus, tmp_path / "world-101")
    async with serve_app(create_app(truth(tmp_path))) as base:
        yield f"{base}/v1"


async def asked(url: str, model: str, *prompts: str) -> list[str]:
    server = await RemoteDriver(model, Model(driver="remote", url=url), Device()).start()
    try:
        return [(await server.complete(prompt, DECODING, 0)).text for prompt in prompts]
    finally:
        await server.stop()


def prompt(document: Document) -> str:
    return render(template("reasoning-quality"), {"document": Served(problem=document.problem, text=document.text)})


async def test_without_noise_every_document_gets_its_true_grade(url: str, corpus: GeneratedCorpus) -> None:
    documents = corpus.documents[:25]
    texts = await asked(url, "oracle-0", *map(prompt, documents))
    for document, text in zip(documents, texts, strict=True):
        rated = parse_rating(text, truncated=False)
        assert isinstance(rated, Rated)
        assert rated.rating == GRADES[document.kind]


async def test_its_ratings_are_pinned_so_that_jobs_may_share_them(url: str) -> None:
    found = [
        await RemoteDriver(name, Model(driver="remote", url=url), Device()).identify()
        for name in ("oracle-0", "oracle-10")
    ]
    assert all(identity.digest for identity in found)
    assert found[0].hash != found[1].hash


@pytest.mark.parametrize("model", ["oracle-", "oracle-200", "judge"])
async def test_who_is_no_oracle_gets_no_rating(url: str, corpus: GeneratedCorpus, model: str) -> None:
    with pytest.raises(ChatFailed, match="unknown model or document"):
        await asked(url, model, prompt(corpus.documents[0]))


async def test_a_document_that_stands_in_no_corpus_gets_no_rating(url: str) -> None:
    strange = render(template("reasoning-quality"), {"document": Served(problem="What is 1 plus 1?", text="2.")})
    with pytest.raises(ChatFailed, match="a document of the corpora"):
        await asked(url, "oracle-0", strange)


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.5, 1.0])
def test_the_share_of_wrong_ratings_is_the_noise(noise: float) -> None:
    wrong = sum(rate(document, 3, noise) != 3 for document in DOCUMENTS) / len(DOCUMENTS)
    assert wrong == pytest.approx(noise, abs=4 * (noise * (1 - noise) / len(DOCUMENTS)) ** 0.5)


def test_wrong_ratings_are_drawn_evenly_from_the_other_four() -> None:
    given = Counter(rate(document, 3, 1.0) for document in DOCUMENTS)
    assert set(given) == {1, 2, 4, 5}
    assert min(given.values()) > 0.2 * len(DOCUMENTS)


def test_more_noise_keeps_the_errors_that_less_noise_makes() -> None:
    few = {document for document in DOCUMENTS if rate(document, 2, 0.1) != 2}
    assert all(rate(document, 2, 0.1) == rate(document, 2, 0.4) != 2 for document in few)


def test_the_truth_is_what_all_corpora_of_a_folder_say(tmp_path: Path) -> None:
    for seed in (101, 102):
        write(build(seed), tmp_path / f"world-{seed}")
    grades = truth(tmp_path)
    for document in [*build(101).documents, *build(102).documents]:
        assert grades[write_document(document.problem, document.text)] == GRADES[document.kind]
