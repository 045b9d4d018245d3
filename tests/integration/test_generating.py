"""Datasets that the judge model writes from the passages of a corpus: from the request to the stored items."""

import asyncio
import json
from typing import Any

import httpx2
import pytest
from sqlalchemy import text

from shared.audit import check
from shared.calls import DocumentRef, Request
from shared.replies import Document, Failure, FailureKind, Generated, Hit, Rated, Reply, Retrieved
from shared.runtime.lifecycle import finish_due_jobs, list_due_jobs
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.scene import rows, scalar

pytestmark = pytest.mark.anyio

FILLER = " Nothing else is known of it, and nobody has written about it since, however long one looks for it." * 2
KINDS = ("amber", "basalt", "cobalt", "dolomite", "epidote", "fluorite", "garnet", "halite")
OWNERS = ("alder", "birch", "cedar", "dogwood")
PASSAGES = [
    Document(text=f"Mine {kind} number {n} was founded in {1700 + n} by {OWNERS[n // 2]} of {kind}.{FILLER} {kind * 2}")
    for n, kind in enumerate(KINDS)
]
"""Two neighbours share a word that no other passage has: the name of their owner."""
LIBRARY = {each.hash: each for each in PASSAGES}
ATTEMPTS = "SELECT count(*) FROM attempts a JOIN calls c ON c.id = a.call_id WHERE c.role IN ('write', 'judge')"
ITEMS = """SELECT question, gold, gold_documents, subject, level, custom_id FROM items i
    JOIN datasets d ON d.id = i.dataset_id WHERE d.name = 'mines' ORDER BY ordinal"""


@pytest.fixture(autouse=True)
async def passages(database: Database, api: Api) -> None:
    """The corpus "docs" has eight passages in two files and two short ones; depends on the scene behind `api`."""
    short = Document(text="A heading")
    every = [*PASSAGES, short]
    async with database.transaction() as connection:
        await connection.execute(
            text("INSERT INTO documents VALUES (:h, '', :b)"),
            [{"h": bytes.fromhex(each.hash), "b": each.text} for each in every],
        )
        await connection.execute(
            text(
                "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash, meta)"
                " SELECT id, :n, :i, :h, CAST(:m AS jsonb) FROM corpora WHERE name = 'docs'"
            ),
            [
                {
                    "n": n, "i": f"p{n}", "h": bytes.fromhex(each.hash),
                    "m": json.dumps({"path": "many.txt" if n < 7 else f"single-{n}.txt"}),
                }
                for n, each in enumerate(every)
            ],
        )  # fmt: skip


def shown(request: Request) -> list[Document]:
    documents = request.values.get("documents")
    assert isinstance(documents, list)
    return [LIBRARY[each.doc] for each in documents if isinstance(each, DocumentRef)]


def number_of(document: Document) -> int:
    return PASSAGES.index(document)


def writes(request: Request) -> Reply:
    """A judge that asks for the year of every passage but that of garnet; it knows the year of amber by heart."""
    template = request.template.partition("@")[0]
    if request.role == "retrieve":
        hits = [each for each in PASSAGES if str(request.values["question"]).split()[4].strip("?") in each.text]
        return Retrieved(hits=tuple(Hit(document=each.hash, rank=n, score=1 / n) for n, each in enumerate(hits, 1)))
    if template == "write-question":
        (passage,) = shown(request)
        n = number_of(passage)
        if n == 6:
            return Generated(text="NONE")
        return Generated(
            text=f"Question: When was mine {KINDS[n]} founded?\nAnswer: {1700 + n}\n"
            f"Quotation: {passage.text.partition('.')[0]}."
        )
    if template == "answer-from-passages":
        return Generated(text=f"{1700 + number_of(shown(request)[0])}")
    if template == "short-answer":
        return Generated(text="1700" if "amber" in str(request.values["question"]) else "I do not know")
    if template == "standalone":
        return Rated(rating=2, text="")
    return scene.by_rule(request)


async def generate(api: Api, **fields: Any) -> httpx2.Response:
    body = {"name": "mines", "corpus": "docs", "size": 5, "candidates": 8, **fields}
    return await api.http.post("/v1/datasets/generate", json=body)


async def test_questions_that_pass_become_an_ordinary_dataset(api: Api, database: Database) -> None:
    writing = await generate(api)
    assert writing.status_code == 202, writing.text
    assert (writing.json()["state"], writing.json()["candidates"], api.woken) == ("writing", 8, 1)
    assert (await generate(api)).json() == writing.json()  # it is being written
    await finished(database, writes)
    made = await generate(api)
    assert made.status_code == 201, made.text
    found = made.json()
    assert found | {"overlap": None, "guessable": None} == {
        "name": "mines", "state": "ready", "job": writing.json()["job"], "candidates": 8, "items": 5,
        "left_out": {"nothing_to_ask": 1}, "failed": 0, "spare": 2, "guessable": None,
        "found_elsewhere": 0, "overlap": None,
    }  # fmt: skip
    assert found["overlap"] == pytest.approx(4 / 5)  # "mine", the kind, "was", "founded"; not "when"
    again = await generate(api)
    assert (again.status_code, again.json()) == (200, made.json())
    items = await rows(database, ITEMS)
    assert len(items) == 5
    for question, gold, documents, subject, level, custom_id in items:
        n = KINDS.index(str(question).split()[3])
        assert (gold, documents, level) == (str(1700 + n), {f"p{n}": 1}, None)
        assert subject == ("guessable" if n == 0 else "needs its documents")
        name, _, index = str(custom_id).partition("/")
        assert name == "mines"
        sample = await api.get(f"/v1/jobs/generate-mines/samples/{index}")
        assert sample["outcome"]["answer"] == question
    assert await scalar(database, "SELECT grader FROM datasets WHERE name = 'mines'") == "contains"
    assert await check(database, writing.json()["job"]) == []
    listed = await api.get("/v1/datasets")
    assert [each["name"] for each in listed["data"]] == ["mines", "items"]
    assert found["guessable"] == sum(subject == "guessable" for _, _, _, subject, _, _ in items)
    page = (await api.http.get(f"/jobs/generate-mines/samples/{index}")).text
    assert "The question passed every check" in page


async def test_every_document_takes_its_turn_and_headings_are_not_drawn(api: Api, database: Database) -> None:
    assert (await generate(api, size=2, candidates=2)).status_code == 202
    drawn = await rows(database, "SELECT question FROM items i JOIN datasets d ON d.id = i.dataset_id WHERE d.online")
    assert ("p7",) in drawn  # the only passage of its file, beside one of the seven of the other
    assert ("p8",) not in drawn
    assert len(drawn) == 2


async def test_a_seed_decides_the_draw_and_what_was_written_is_not_written_again(api: Api, database: Database) -> None:
    await generate(api)
    await finished(database, writes)
    first = (await generate(api)).json()
    asked = await scalar(database, ATTEMPTS)
    assert (await generate(api, name="again")).status_code == 202
    await finished(database, writes)
    second = (await generate(api, name="again")).json()
    assert second["items"] == 5
    assert await scalar(database, ATTEMPTS) == asked
    hashes = "SELECT count(DISTINCT question) FROM items i JOIN datasets d ON d.id = i.dataset_id WHERE NOT d.online"
    assert await scalar(database, f"{hashes} AND d.name <> 'items'") == 5
    assert first["overlap"] == second["overlap"]
    orders = set()
    for seed in range(4):
        await generate(api, name=f"seed-{seed}", seed=seed)
        found = await rows(
            database,
            "SELECT string_agg(i.question, ' ' ORDER BY i.ordinal) FROM items i JOIN jobs j"
            " ON j.dataset_id = i.dataset_id WHERE j.metadata ->> 'dataset' = :name",
            name=f"seed-{seed}",
        )
        orders.add(found[0])
    assert len(orders) > 1


async def test_styles_are_used_in_turn(api: Api, database: Database) -> None:
    styles = ["Ask in a few keywords.", "Ask as a child."]
    assert (await generate(api, styles=styles)).status_code == 202
    prompts: list[str] = []

    def listen(request: Request) -> Reply:
        if "write-question" in request.template:
            prompts.append(str(request.values["style"]).strip())
        return writes(request)

    await finished(database, listen)
    assert sorted(prompts) == sorted(styles * 4)


async def test_two_passages_that_share_a_rare_word_make_a_question_of_two_hops(api: Api, database: Database) -> None:
    def hops(request: Request) -> Reply:
        template = request.template.partition("@")[0]
        if template == "write-two-hop-question":
            first, second = shown(request)
            lines = "".join(f"Quotation: {each.text.partition('.')[0]}.\n" for each in (first, second))
            n = number_of(second)
            return Generated(text=f"Question: When did the founder of {KINDS[number_of(first)]} found the other mine?\n"
                                  f"Answer: {1700 + n}\n{lines}")  # fmt: skip
        if template == "answer-from-passages" and "founder" in str(request.values["question"]):
            documents = shown(request)
            return Generated(text=f"{1700 + number_of(documents[1])}" if len(documents) == 2 else "UNKNOWN")
        if request.role == "retrieve":
            return Retrieved(hits=())
        return writes(request)

    await scene.run_sql(database, "UPDATE corpus_documents SET meta = '{}'")  # every passage is its own document
    assert (await generate(api, hops=[2])).json()["candidates"] == 4
    await finished(database, hops)
    made = (await generate(api, hops=[2])).json()
    assert (made["items"], made["left_out"]) == (4, {})
    for _, _, documents, _, level, _ in await rows(database, ITEMS):
        assert level is None  # all questions are of one kind
        pair = sorted(int(each[1:]) for each in documents)  # type: ignore[attr-defined]
        assert pair[1] == pair[0] + 1
        assert pair[0] % 2 == 0  # of one owner
    both = await generate(api, name="mixed", hops=[2, 1])
    assert both.status_code == 202, both.text
    await finished(database, hops)
    assert (await generate(api, name="mixed", hops=[1, 2])).json()["items"] == 5
    levels = "SELECT DISTINCT level FROM items i JOIN datasets d ON d.id = i.dataset_id WHERE d.name = 'mixed'"
    assert sorted(await rows(database, levels)) == [("1 hop",), ("2 hops",)]


async def test_questions_that_repeat_each_other_and_failed_candidates_are_counted(api: Api, database: Database) -> None:
    def repeat(request: Request) -> Reply:
        written = writes(request)
        if isinstance(written, Generated) and "write-question" in request.template:
            if "amber" in written.text:
                return Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="the prompt does not fit")
            if "basalt" in written.text or "cobalt" in written.text:
                said = written.text.replace("basalt founded", "X founded").replace("cobalt founded", "X founded")
                return Generated(text=said)
        return written

    await generate(api, size=8)
    await finished(database, repeat)
    made = (await generate(api, size=8)).json()
    assert (made["items"], made["failed"], made["left_out"]) == (5, 1, {"nothing_to_ask": 1, "duplicate": 1})


async def test_a_job_that_was_cancelled_is_started_anew_and_keeps_what_is_done(api: Api, database: Database) -> None:
    first = (await generate(api)).json()["job"]
    assert (await api.http.post(f"/v1/jobs/{first}/cancel")).status_code in (200, 202)
    while await list_due_jobs(database):
        await finish_due_jobs(database)
    second = (await generate(api)).json()
    assert (second["state"], second["job"] == first) == ("writing", False)
    await finished(database, writes)
    assert (await generate(api)).status_code == 201
    names = await rows(database, "SELECT name FROM jobs ORDER BY id")
    assert names == [("generate-mines",), ("generate-mines-r2",)]


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({"corpus": "none"}, 404, "no corpus 'none'"),
        ({"name": "a name"}, 422, "not a valid name"),
        ({"candidates": 3}, 422, "`candidates`: 3 are too few for `size` 5"),
        ({"grader": "none"}, 422, "grader"),
        ({"grader": "choice"}, 422, "needs more than a question and an answer"),
        ({"styles": [""]}, 422, "styles"),
        ({"size": 0}, 422, "size"),
        ({"hops": []}, 422, "hops"),
        ({"hops": [3]}, 422, "hops"),
        ({"styles": ["x" * 513]}, 422, "styles"),
        ({"models": {"judge": "none"}}, 422, "no guard serves a model 'none'"),
        ({"name": "items"}, 409, "dataset 'items' exists already"),
    ],
)
async def test_a_request_that_cannot_be_met_starts_no_job(
    api: Api, database: Database, fields: dict[str, Any], status: int, message: str
) -> None:
    reply = await generate(api, **fields)
    assert (reply.status_code, message in reply.text) == (status, True), reply.text
    assert await scalar(database, "SELECT count(*) FROM jobs") == 0


async def test_requests_at_once_start_one_job(api: Api, database: Database) -> None:
    answers = await asyncio.gather(*(generate(api, seed=seed) for seed in (0, 0, 0, 1)))
    assert len({answer.json()["job"] for answer in answers if answer.status_code == 202}) == 1
    assert {answer.status_code for answer in answers} == {202, 409}
    assert await scalar(database, "SELECT count(*) FROM jobs") == 1


async def test_a_passage_that_stands_in_the_corpus_often_is_drawn_once(api: Api, database: Database) -> None:
    await scene.run_sql(
        database,
        "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash)"
        " SELECT corpus_id, 100 + n, 'copy-' || n, hash FROM corpus_documents, generate_series(1, 100) n"
        " WHERE external_id = 'p0'",
    )
    assert (await generate(api, size=8)).json()["candidates"] == 8
    await finished(database, writes)
    assert (await generate(api, size=8)).json()["items"] == 7
    documents = "SELECT gold_documents FROM items WHERE question LIKE '%amber%' AND gold IS NOT NULL"
    ((named,),) = await rows(database, documents)
    assert len(named) == 101  # type: ignore[arg-type]


async def test_a_judge_that_gives_no_labels_is_told_from_one_that_is_away(api: Api, database: Database) -> None:
    def silent(request: Request) -> Reply:
        if request.role == "judge":
            return Failure(kind=FailureKind.UNPARSED, detail="no label")
        return writes(request)

    await generate(api)
    await finished(database, silent)
    reply = await generate(api)
    assert "of 8 candidates, 1 nothing_to_ask, 7 not_labelled" in reply.text


async def test_chinese_passages_are_paired_by_two_characters(api: Api, database: Database) -> None:
    first = "袁隆平在一九七三年培育出杂交水稻。" + "他的工作得到了许多人的认可。" * 15
    second = "袁隆平出生于北京协和医院。" + "那一年冬天十分寒冷漫长。" * 18
    await scene.run_sql(database, "DELETE FROM corpus_documents")
    for n, each in enumerate((Document(text=first), Document(text=second))):
        await scene.run_sql(
            database, "INSERT INTO documents VALUES (decode(:hash, 'hex'), '', :body)", hash=each.hash, body=each.text
        )
        await scene.run_sql(
            database,
            "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash)"
            " SELECT id, :n, :name, decode(:hash, 'hex') FROM corpora WHERE name = 'docs'",
            n=n, name=f"z{n}", hash=each.hash,
        )  # fmt: skip
    assert (await generate(api, hops=[2])).json()["candidates"] == 1


async def test_a_name_that_other_settings_use_is_refused(api: Api, database: Database) -> None:
    await generate(api)
    reply = await generate(api, seed=1)
    assert (reply.status_code, "job generate-mines already writes its questions" in reply.text) == (409, True), (
        reply.text
    )
    await finished(database, writes)
    assert (await generate(api)).status_code == 201
    reply = await generate(api, seed=1)
    assert (reply.status_code, "exists already, and no job of these settings made it" in reply.text) == (409, True)


async def test_a_corpus_without_passages_of_enough_length_is_refused(api: Api, database: Database) -> None:
    await scene.run_sql(database, "DELETE FROM corpus_documents WHERE external_id <> 'p8'")
    reply = await generate(api)
    assert (reply.status_code, "has no passages of 200 to 4,000 characters" in reply.text) == (422, True), reply.text
    reply = await generate(api, hops=[2])
    assert (reply.status_code, "share a rare word" in reply.text) == (422, True), reply.text


async def test_a_dataset_of_nothing_is_refused_with_the_reasons(api: Api, database: Database) -> None:
    def none(request: Request) -> Reply:
        return Generated(text="NONE") if request.role == "write" else writes(request)

    await generate(api)
    await finished(database, none)
    reply = await generate(api)
    assert (reply.status_code, "of 8 candidates, 8 nothing_to_ask" in reply.text) == (409, True), reply.text
    assert await scalar(database, "SELECT count(*) FROM datasets WHERE name = 'mines'") == 0


async def test_a_job_that_writes_questions_has_no_answers_and_is_not_submitted_by_hand(
    api: Api, database: Database
) -> None:
    body = {"name": "j", "dataset": "items", "corpus": "docs", "pipeline": "write-questions"}
    reply = await api.http.post("/v1/jobs", json=body)
    assert (reply.status_code, "its jobs are created from passages of a corpus" in reply.text) == (422, True), (
        reply.text
    )
    job = (await generate(api)).json()["job"]
    await finished(database, writes)
    for path, sent in (("requeue", {}), ("measure", {"params": {"metrics": {"names": ["answer_relevance"]}}})):
        reply = await api.http.post(f"/v1/jobs/{job}/{path}", json=sent)
        assert reply.status_code == 409, reply.text
    for path in ("", "/report"):
        assert (await api.http.get(f"/jobs/{job}{path}")).status_code == 200
