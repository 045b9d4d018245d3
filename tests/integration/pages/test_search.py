"""`/search`: what was found and why, bad input beside its field, and texts that would like to be more than texts."""

import re
from collections.abc import AsyncIterator

import httpx2
import pytest

from shared.rag.fusion import rrf
from shared.replies import Document
from shared.shapes import Scope
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving
from tests.integration.pages.browsing import look, rows, sign_in, text
from tests.integration.test_search_api import HASHES, Retriever

pytestmark = pytest.mark.anyio
HOSTILE = Document(
    problem="\u202eeman<script>alert(1)</script> $x^2$", text="</p><img src=x onerror=alert(1)> plus \\(y\\)"
)


@pytest.fixture
async def searched(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database, 1)
    async with serving(database, redis_url) as api:
        ((dense, sparse),) = await scene.rows(database, "SELECT dense_index, sparse_index FROM corpora")
        api.other = Retriever({int(str(dense)): HASHES, int(str(sparse)): HASHES[::-1]})
        yield api


def found(page: str) -> list[str]:
    drawn = re.findall(r'<li class="card" data-row.*?</li>', page, re.DOTALL)
    return [" ".join(re.sub(r"<[^>]+>", " ", each).split()) for each in drawn]


async def test_a_document_says_in_which_lists_it_was_and_what_that_added(searched: Api) -> None:
    page = await text(searched, "/search?q=What&corpus=docs&k=3")
    best, score = rrf([HASHES[:10], HASHES[::-1][:10]])[0]
    shown = found(page)
    assert len(shown) == 3
    assert best[:12] in shown[0]
    assert f"vectors (flat) 1 1 {1 / 61:.3g}" in " ".join(shown)
    assert f"fused {score:.3g}" in shown[0]
    assert "60 + rank" in page


async def test_one_method_alone_has_no_fusion(searched: Api) -> None:
    page = await text(searched, "/search?q=What&corpus=docs&k=2&method=dense")
    assert "by vectors (flat) alone" in page
    assert "fused" not in " ".join(found(page))


async def test_parameters_of_the_search_count_and_stay_in_the_form(searched: Api) -> None:
    page = await text(searched, "/search?q=What&corpus=docs&params.rrf_k=1&params.fusion.dense=0.9")
    assert "weight / (1 + rank)" in page
    assert re.search(r'name="params.fusion.dense"[^>]* value="0.9"', page)
    assert "vectors (flat) 0.9, BM25 0.5" in page


async def test_quality_and_a_reranker_that_is_missing_are_said(searched: Api) -> None:
    page = await text(searched, "/search?q=What&corpus=docs&k=1&quality=true&rerank=true")
    assert "reasoning, by rules" in found(page)[0]
    assert "rerank: original order (not configured)" in page


async def test_matching_words_are_marked_and_words_of_any_question_are_not(searched: Api) -> None:
    page = await text(searched, "/search?q=What+is+3+plus+4&corpus=docs&method=dense&k=5")
    assert "What is <mark>3</mark> <mark>plus</mark> <mark>3</mark>?" in page
    assert '<span class="math">\\boxed{6}</span>' in page


async def test_hostile_documents_and_questions_are_texts(searched: Api, database: Database) -> None:
    await scene.run_sql(
        database, "INSERT INTO documents VALUES (:h, :p, :b)", h=bytes.fromhex(HOSTILE.hash), p=HOSTILE.problem,
        b=HOSTILE.text,
    )  # fmt: skip
    retriever = searched.other
    assert isinstance(retriever, Retriever)
    retriever.indexes = {index: [HOSTILE.hash] for index in retriever.indexes}
    page = await text(searched, '/search?q="><script>alert(2)</script>+plus&corpus=docs')
    assert "<script>" not in page
    assert "<img" not in page
    assert "U+202E" in page
    assert "&lt;script&gt;alert" in page


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("corpus=nope", 404, "no corpus &#39;nope&#39;"),
        ("corpus=docs&k=0", 422, "input should be greater than or equal to 1"),
        ("corpus=docs&method=best", 422, "should be &#39;dense&#39;"),
        ("corpus=docs&params.candidates=ten", 422, "expected <code>int</code>, got <code>str</code>"),
        ("corpus=docs&params.rrf_k=0", 422, "must be between 1 and 1000000"),
        ("corpus=docs&params.gate.tau=0.5", 422, "a search would not read it"),
        ("corpus=docs&params.fusion=1", 422, "expected <code>object</code>, got <code>str</code>"),
        ("corpus=docs&foo=1", 422, "there is no such field"),
        ("corpus=docs&params.fusion.normalizer=rank", 422, "there is no such field"),
    ],
)
async def test_bad_values_are_said_and_the_form_keeps_what_was_written(
    searched: Api, query: str, status: int, words: str
) -> None:
    reply = await look(searched, f"/search?q=keep+this&{query}")
    assert reply.status_code == status
    assert words in reply.text
    assert 'value="keep this"' in reply.text


async def test_a_message_stands_beside_its_field(searched: Api) -> None:
    page = (await look(searched, "/search?q=x&corpus=docs&params.candidates=ten")).text
    field = page.partition('name="params.candidates"')[2].partition("</div>")[0]
    assert 'aria-describedby="params.candidates-error"' in field
    assert 'id="params.candidates-error"' in field
    assert 'value="ten"' in field


async def test_a_retriever_that_is_away_is_said_as_the_api_says_it(searched: Api) -> None:
    def away(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("too slow", request=request)

    searched.other = away
    reply = await look(searched, "/search?q=What&corpus=docs")
    assert reply.status_code == 503
    assert "the retriever did not answer (ReadTimeout)" in reply.text
    assert "GET /readyz" in reply.text


async def test_a_service_without_a_corpus_says_how_to_make_one(database: Database, redis_url: str) -> None:
    async with serving(database, redis_url) as api:
        page = await text(api, "/search")
    assert "There is no corpus to search yet" in page
    assert "mathrag corpus create NAME FILE" in page


async def test_without_a_question_nothing_is_searched(searched: Api) -> None:
    page = await text(searched, "/search?corpus=docs")
    assert searched.asked == []
    assert rows(page) == []


async def test_searching_needs_the_scope_read(keyed: Api, database: Database) -> None:
    assert (await look(keyed, "/search?q=x&corpus=docs")).status_code == 303
    await sign_in(keyed, database, Scope.SUBMIT)
    assert (await look(keyed, "/search?q=x&corpus=docs")).status_code == 403
