import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.replies import CorpusRecord, Document
from shared.storage import corpora, datasets
from shared.storage.database import Database
from tests.integration import rule_banks
from tests.integration.api import Api
from tests.integration.pages.browsing import look, next_page, rows, text, without_time

# Corpora: what is searched, its indexes and documents, and questions whose answers stand in them.


pytestmark = pytest.mark.anyio

CORPORA_HOSTILE = "<script>alert(1)</script>\u202e</span>"


async def store(database: Database, name: str, *documents: Document, **meta: Any) -> None:
    async def batches() -> AsyncIterator[list[CorpusRecord]]:
        yield [CorpusRecord(external_id=f"d{at}", document=each, meta=meta) for at, each in enumerate(documents)]

    await corpora.create(database, name, batches())


def hash_of(page: str) -> str:
    found = re.search(r"/documents/([0-9a-f]{64})", page)
    assert found
    return found[1]


async def test_without_a_corpus_the_page_says_how_to_make_one(empty_api: Api) -> None:
    assert "mathrag corpus create NAME --from PATH" in await text(empty_api, "/corpora")


async def test_a_list_says_what_can_be_searched(api: Api, database: Database) -> None:
    await rule_banks.store_graph(database, "kin")
    await store(database, "plain", Document(text="A passage."))
    found = [without_time(row) for row in rows(await text(api, "/corpora"))]
    assert found == [
        "plain 1 missing documents",
        "kin 1 missing facts of the graph kin",
        "docs 20 both are built documents",
    ]


async def test_a_corpus_shows_its_indexes_with_their_recipes(api: Api, database: Database) -> None:
    await api.job("hybrid")
    page = await text(api, "/corpora/docs")
    assert "ready to be searched" in page
    assert "Dense index" in page
    assert "Sparse index" in page
    assert "a-job" in rows(page)[-1]
    found = await api.get("/v1/corpora/docs")
    assert [(index["kind"], index["used"]) for index in found["indexes"]] == [("dense", True), ("sparse", True)]
    assert [job["corpus"] for job in (await api.get("/v1/jobs", corpus="docs"))["data"]] == ["docs"]
    assert (await api.get("/v1/jobs", corpus="other"))["data"] == []


async def test_a_corpus_without_indexes_says_what_to_do(api: Api, database: Database) -> None:
    await store(database, "plain", Document(problem="What is $1+1$?", text="It is $2$."), Document(text="A passage."))
    page = await text(api, "/corpora/plain")
    assert "mathrag corpus index plain" in page
    assert "1 of the first 2" in page


async def test_documents_are_turned_page_by_page(api: Api, database: Database) -> None:
    await store(database, "long", *(Document(text=f"Passage {at}.") for at in range(25)))
    path: str | None = "/corpora/long"
    seen = []
    while path:
        page = await text(api, path)
        seen += [row.split()[0] for row in rows(page) if "Passage" in row]
        path = next_page(page)
    assert seen == [f"d{at}" for at in range(25)]
    assert (await look(api, "/corpora/docs?cursor=x")).status_code == 400


async def test_a_document_is_shown_in_full_with_its_mathematics(api: Api, database: Database) -> None:
    long = "Because $x^2=4$, " + "so " * 3000 + "the end."
    same = Document(problem="Solve $x^2=4$.", text=long)
    await store(database, "twice", same, Document(text="Another."), same, level="Level 1")
    first = await text(api, "/corpora/twice")
    assert "the end" not in first
    page = await text(api, f"/corpora/twice/documents/{hash_of(first)}")
    assert "the end." in page
    assert 'class="math"' in page
    assert "d0, d2" in page
    assert "Level 1" in page


@pytest.mark.parametrize("document", ["0" * 64, "x", "0" * 63, "%00", "0" * 500])
async def test_a_document_that_the_corpus_does_not_hold_is_not_found(api: Api, document: str) -> None:
    reply = await look(api, f"/corpora/docs/documents/{document}")
    assert reply.status_code in (404, 422)
    assert "<h1>" in reply.text


async def test_an_unknown_corpus_is_told_from_what_was_meant(api: Api) -> None:
    for path in ("/corpora/dosc", "/corpora/dosc/contamination", f"/corpora/dosc/documents/{'0' * 64}"):
        reply = await look(api, path)
        assert reply.status_code == 404
        assert "did you mean &#39;docs&#39;?" in reply.text


async def test_hostile_documents_are_shown_and_do_not_act(api: Api, database: Database) -> None:
    long = CORPORA_HOSTILE + "$\\href{javascript:x}{y}$" + "a" * 1_000_000
    await store(
        database,
        "evil",
        Document(problem=CORPORA_HOSTILE, text=long),
        **{CORPORA_HOSTILE: CORPORA_HOSTILE},
    )
    first = await text(api, "/corpora/evil")
    assert len(first) < 50_000
    for page in (first, await text(api, f"/corpora/evil/documents/{hash_of(first)}")):
        assert "<script>alert" not in page
        assert "U+202E" in page
        assert "&lt;/span&gt;" in page


async def test_leaked_answers_are_counted_once_a_dataset_is_chosen(api: Api, database: Database) -> None:
    await scene_corpus(database)
    assert "Exact" not in await text(api, "/corpora/leaky/contamination")
    page = await text(api, "/corpora/leaky/contamination?dataset=items")
    assert "1 of 5 questions of items have their problem in leaky" in page
    assert rows(page) == ["d0 word for word, same answer What is 3 plus 3? What is 3 plus 3?"]
    assert (await look(api, "/corpora/leaky/contamination?dataset=nothing")).status_code == 404
    assert (await look(api, "/corpora/leaky/contamination?dataset=<b>")).status_code == 422


async def scene_corpus(database: Database) -> None:
    await store(database, "leaky", Document(problem="What is 3 plus 3?", text="\\boxed{6}"), Document(text="Other."))


async def test_a_page_of_a_large_corpus_costs_no_more_than_of_a_small_one(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "SAMPLED", 3)
    await store(database, "long", *(Document(text="x" * at) for at in range(1, 9)))
    texts = (await api.get("/v1/corpora/long"))["texts"]
    assert texts == {"sampled": 3, "mean_bytes": 2.0, "longest_bytes": 3, "problems": 0}


# Datasets: what is asked, by subject and level, with gold answers or without.

DATASETS_HOSTILE = "<script>alert(1)</script>\u202e"
VARIED = [
    {"question": "What is $1+1$?", "answer": "2", "subject": "Algebra", "level": "Level 2", "id": "a/1"},
    {"question": "What is $\\frac12$ of 8?", "answer": "4", "subject": "Algebra", "level": "Level 10"},
    {
        "question": "Why?",
        "subject": "Logic",
        "gold_documents": {"d1": 1, "d2": 2},
        "nuggets": ["One is so.", "$x = 1$"],
    },
]


async def test_without_a_dataset_the_page_says_how_to_make_one(empty_api: Api) -> None:
    assert "mathrag dataset create NAME --from PATH" in await text(empty_api, "/datasets")


async def test_a_list_says_how_answers_are_graded(api: Api) -> None:
    await api.upload("datasets", "quiz", [{"question": "Who?", "answer": "Noether"}], grader="contains")
    found = [without_time(row) for row in rows(await text(api, "/datasets"))]
    assert found == ["quiz 1 by contains", "items 5 as mathematics"]


async def test_a_dataset_shows_what_its_items_have(api: Api) -> None:
    await api.upload("datasets", "varied", VARIED)
    page = await text(api, "/datasets/varied")
    assert "3 items; 2 of 3 have a gold answer." in page
    assert "/submit?dataset=varied" in page
    assert rows(page) == [
        "0 a/1 What is $1+1$? 2 Algebra, level 2",
        "1 What is $\\frac12$ of 8? 4 Algebra, level 10",
        "2 Why? none 2 nuggets One is so. $x = 1$ Logic 2 relevant documents",
    ]
    counts = (await api.get("/v1/datasets/varied"))["counts"]
    assert [(each["name"], each["items"]) for each in counts["subjects"]] == [("Algebra", 2), ("Logic", 1)]
    assert [each["name"] for each in counts["levels"]] == ["2", "10"]
    assert (counts["counted"], counts["gold"], counts["gold_documents"], counts["nuggets"]) == (3, 2, 1, 1)


async def test_a_dataset_without_gold_answers_says_that_nothing_is_graded(api: Api) -> None:
    await api.upload("datasets", "open", [{"question": "Why?"}])
    assert "answers are not graded" in await text(api, "/datasets/open")


async def test_a_large_dataset_is_counted_up_to_a_bound(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "COUNTED", 2)
    await api.upload("datasets", "varied", VARIED)
    assert (await api.get("/v1/datasets/varied"))["counts"]["counted"] == 2
    assert "the first 2 items" in await text(api, "/datasets/varied")


async def test_items_are_turned_page_by_page(api: Api) -> None:
    await api.upload("datasets", "long", [{"question": f"Question {at}?"} for at in range(23)])
    path: str | None = "/datasets/long"
    seen = []
    while path:
        page = await text(api, path)
        seen += [row.split()[0] for row in rows(page)]
        path = next_page(page)
    assert seen == [str(at) for at in range(23)]
    assert (await look(api, "/datasets/items?cursor=x")).status_code == 400


async def test_jobs_over_a_dataset_are_linked(api: Api) -> None:
    assert "mathrag job submit" in await text(api, "/datasets/items")
    for _ in range(6):
        await api.job()
    page = await text(api, "/datasets/items")
    assert [row.split()[0] for row in rows(page)[5:]] == [f"a-job-{at}" for at in (6, 5, 4, 3, 2)]
    assert '"/jobs?dataset=items">All of its jobs' in page
    assert "/corpora/docs/contamination?dataset=items" in page


async def test_an_unknown_dataset_is_told_from_what_was_meant(api: Api) -> None:
    reply = await look(api, "/datasets/itmes")
    assert reply.status_code == 404
    assert "did you mean &#39;items&#39;?" in reply.text


async def test_hostile_items_are_shown_and_do_not_act(api: Api) -> None:
    item = dict.fromkeys(("answer", "subject", "level", "id"), DATASETS_HOSTILE)
    reply = await api.upload("datasets", "evil", [{"question": DATASETS_HOSTILE + "a" * 32_000, **item}])
    assert reply.status_code == 201, reply.text
    page = await text(api, "/datasets/evil")
    assert "<script>alert" not in page
    assert page.count("U+202E") >= 5
    assert "characters</span></summary>" in page
