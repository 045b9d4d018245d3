"""Datasets: uploaded, made of a graph, exported as training data, and held against a corpus."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx2
import pytest
from sqlalchemy import text

from services.orchestrator.api import datasets
from services.orchestrator.reports import leaks
from shared.replies import Atom, Rule
from shared.samples import Item
from shared.storage import rules
from shared.storage.database import Database
from shared.storage.rules import ImportOrigin
from tests.integration.api import Api, finished
from tests.integration.scene import force, furnish, rows, run_sql, scalar

pytestmark = pytest.mark.anyio


LINES: list[Any] = [
    {"id": "q1", "question": "What is 1 + 1?", "answer": 2, "subject": "Algebra", "level": "Level 1"},
    {"question": "What is 2 + 2?", "gold_documents": ["a"]},
]

LEFT_OUT = ("skipped", "rejected", "rejected_lines", "alternatives", "warnings")
"""What is said about an upload, not about the dataset."""


@pytest.fixture
def api(empty_api: Api) -> Api:
    return empty_api


async def test_items_are_stored_in_order_with_all_that_is_known(api: Api, database: Database) -> None:
    reply = await api.upload("datasets", "mine", LINES)
    assert (reply.status_code, reply.json()["items"]) == (201, 2)
    async with database.transaction() as connection:
        first, second = (await connection.execute(text("SELECT * FROM items ORDER BY ordinal"))).all()
    assert (first.question, first.gold, first.subject, first.level) == ("What is 1 + 1?", "2", "Algebra", "1")
    assert (first.custom_id, first.hash.hex()) == ("q1", Item(ordinal=0, question="What is 1 + 1?", gold="2").hash)
    assert (second.gold, second.gold_documents, second.custom_id) == (None, {"a": 1}, None)


async def test_listed_items_can_be_uploaded_again_with_their_nuggets(api: Api) -> None:
    nuggets = ["One and one are two.", "Two is even."]
    first = (await api.upload("datasets", "mine", [*LINES, {"question": "Why?", "nuggets": nuggets}])).json()
    listed = (await api.get("/v1/datasets/mine/items"))["data"]
    assert [item["nuggets"] for item in listed] == [None, None, nuggets]
    assert (await api.get("/v1/datasets/mine"))["counts"]["nuggets"] == 1
    again = (await api.upload("datasets", "again", listed)).json()
    assert (again["hash"], again["items"]) == (first["hash"], 3)
    refused = await api.upload("datasets", "bad", [*LINES, {"question": "Why?", "nuggets": [{}]}])
    assert (refused.status_code, refused.json()["line"]) == (422, 3)
    assert "`nuggets` is an object; write it as a string" in refused.json()["detail"]


async def draw(api: Api, name: str, size: int, *, of: str = "mine", status: int = 201, **fields: Any) -> Any:
    reply = await api.http.post(f"/v1/datasets/{of}/draw", json={"name": name, "size": size, **fields})
    assert reply.status_code == status, reply.text
    return reply.json()


async def test_drawn_items_keep_all_that_is_known_and_their_order(api: Api) -> None:
    choices = {**LINES[0], "answer": "A", "choices": {"A": "red", "B": "blue"}, "gold_documents": {"a": 2}}
    several = {"id": "q2", "question": "Who?", "answer": ["I", "me"], "nuggets": ["It is I."]}
    for name, lines, grader in (("mine", [choices], "choice"), ("worded", [*LINES, several], "text")):
        made = (await api.upload("datasets", name, lines, grader=grader)).json()
        assert (await draw(api, f"all-{name}", len(lines), of=name))["drawn"]["hash"] == made["hash"]
    lines = [{"question": f"What is {n}?", "answer": n} for n in range(60)]
    await api.upload("datasets", "many", lines)
    found = await draw(api, "some", 20, of="many", rest="others", seed=7)
    assert (found["drawn"]["items"], found["rest"]["items"]) == (20, 40)
    some, others = [
        [int(item["gold"]) for item in (await api.get(f"/v1/datasets/{name}/items", limit=60))["data"]]
        for name in ("some", "others")
    ]
    assert sorted(some + others) == list(range(60))
    assert (some, others) == (sorted(some), sorted(others))
    assert some != list(range(20))


async def test_a_draw_again_is_the_same_and_another_seed_draws_others(api: Api) -> None:
    await api.upload("datasets", "many", [{"question": f"What is {n}?", "answer": n} for n in range(60)])
    first = await draw(api, "some", 20, of="many", rest="others")
    assert await draw(api, "some", 20, of="many", rest="others", status=200) == first
    assert await draw(api, "some", 20, of="many", rest="other-name") != first, "it is new, and answered with 201"
    assert (await draw(api, "other", 20, of="many", seed=1))["drawn"]["hash"] != first["drawn"]["hash"]
    assert "exists with other items" in (await draw(api, "some", 20, of="many", seed=1, status=409))["detail"]


async def test_what_cannot_be_drawn_is_refused(api: Api) -> None:
    await api.upload("datasets", "mine", LINES)
    assert "has 2 items, too few to draw 3" in (await draw(api, "some", 3, status=422))["detail"]
    assert "too few to draw 2 and leave a rest" in (await draw(api, "some", 2, rest="none", status=422))["detail"]
    assert "`size`" in (await draw(api, "some", 0, status=422))["detail"]
    assert "nobody" in (await draw(api, "some", 1, of="nobody", status=404))["detail"]
    assert (await draw(api, "so/me", 1, status=422))["title"] == "Invalid"
    assert (await draw(api, "some", 1, rest="re/st", status=422))["title"] == "Invalid"
    assert (
        "`rest`: must differ from the name of the drawn items"
        in (await draw(api, "some", 1, rest="some", status=422))["detail"]
    )
    assert (await api.http.get("/v1/datasets/some")).status_code == 404


async def test_the_same_upload_again_is_the_same_dataset(api: Api) -> None:
    first = (await api.upload("datasets", "mine", LINES)).json()
    again = await api.upload("datasets", "mine", LINES)
    assert (again.status_code, again.json()) == (200, first)
    changed = [{**LINES[0], "level": 2}, LINES[1]]
    assert (await api.upload("datasets", "mine", changed)).status_code == 409


async def test_a_bad_line_rejects_the_upload_with_its_number(api: Api, database: Database) -> None:
    reply = await api.upload("datasets", "mine", [*LINES, {"answer": "4"}])
    assert (reply.status_code, reply.json()["line"]) == (422, 3)
    assert await scalar(database, "SELECT count(*) FROM datasets") == 0


async def test_two_uploads_of_one_name_at_once_are_one_dataset(api: Api, database: Database) -> None:
    replies = await asyncio.gather(*(api.upload("datasets", "mine", LINES) for _ in range(2)))
    assert sorted(reply.status_code for reply in replies) == [200, 201]
    assert await scalar(database, "SELECT count(*) FROM items") == 2


async def test_a_dataset_is_found_by_its_name(api: Api) -> None:
    stored = (await api.upload("datasets", "mine", LINES)).json()
    found = await api.get("/v1/datasets/mine")
    assert found.pop("counts")["counted"] == 2
    assert found == {field: value for field, value in stored.items() if field not in LEFT_OUT}
    assert (await api.get("/v1/datasets"))["data"] == [found]
    assert (await api.http.get("/v1/datasets/none")).status_code == 404


async def test_an_upload_without_any_expected_answer_is_told_so(api: Api) -> None:
    misspelt = [{"question": "What is 1 + 1?", "anwser": 2}, {"question": "What is 2 + 2?", "anwser": 4}]
    for status in (201, 200):
        reply = await api.upload("datasets", "mine", misspelt)
        assert reply.status_code == status
        (warning,) = reply.json()["warnings"]
        assert "no item has an expected answer" in warning
        assert "`anwser` (did you mean `answer`?)" in warning
    (partial,) = (await api.upload("datasets", "other", LINES)).json()["warnings"]
    assert partial == "1 of 2 items have no expected answer: answers to them are not graded"
    by_rubric = await api.upload("datasets", "rated", misspelt, grader="rubric")
    assert by_rubric.json()["warnings"] == ["`anwser` was not read: did you mean `answer`?"]


PARTLY = "answers to them are not graded, and the accuracy is that of the others"


async def test_a_job_over_a_dataset_without_any_expected_answer_is_told_so(api: Api, database: Database) -> None:
    await furnish(database)
    await api.upload("datasets", "open", [{"question": "Why?"}, {"question": "How?", "anwser": "So."}])
    await api.upload("datasets", "half", [{"question": "Why?"}, {"question": "How?", "answer": "4"}])
    said = "items of dataset '{}' has an expected answer: no answer can be graded"
    for name, fields, expected in (
        ("open", {}, ["none of the 2 " + said.format("open")]),
        ("open", {"limit": 1}, ["none of the 1 " + said.format("open")]),
        ("open", {"params": {"grading": {"grader": "rubric"}}}, None),
        ("half", {"limit": 1}, ["none of the 1 " + said.format("half")]),
        ("half", {}, [f"1 of the 2 items of dataset 'half' have no expected answer: {PARTLY}"]),
        ("items", {}, None),
    ):
        assert (await api.job(dataset=name, **fields)).get("warnings") == expected
    reply = await api.http.post("/v1/jobs/import?name=theirs&dataset=open", content=b'{"index": 0, "answer": "So."}')
    assert ("none of the 2 " + said.format("open")) in reply.json()["warnings"]
    places = [{"dataset": name, "corpus": "docs"} for name in ("open", "items")]
    body = {
        "name": "e",
        "datasets": places,
        "variants": [{"name": "d", "pipeline": "dense"}],
        "grid": {"candidates": [5, 6]},
    }
    reply = await api.http.post("/v1/experiments", json=body)
    assert (reply.status_code, reply.json()["warnings"]) == (202, ["none of the 2 " + said.format("open")])


WORDS = [{"question": "Capital?", "answer": "Bern"}, {"question": "Where?", "answer": "in the cupboard"}]
IN_WORDS = (
    "2 of 2 expected answers are words, but are graded as mathematics: to grade texts, add --grader text (or contains,"
    " f1; docs/how-to/graders.md)"
)


async def test_answers_in_words_are_not_graded_as_mathematics_in_silence(api: Api, database: Database) -> None:
    await furnish(database)
    assert (await api.upload("datasets", "words", WORDS)).json()["warnings"] == [IN_WORDS]
    assert (await api.upload("datasets", "declared", WORDS, grader="text")).json()["warnings"] == []
    numbers = [{"question": str(n), "answer": answer} for n, answer in enumerate([r"\frac{1}{2}", "x", "12", "Monday"])]
    assert (await api.upload("datasets", "numbers", numbers)).json()["warnings"] == []
    for dataset, params, expected in (
        ("words", {}, [f"dataset 'words': {IN_WORDS}"]),
        ("words", {"grading": {"grader": "math"}}, None),
        ("words", {"grading": {"grader": "text"}}, None),
        ("declared", {}, None),
        ("numbers", {}, None),
    ):
        assert (await api.job(dataset=dataset, params=params)).get("warnings") == expected


async def test_answers_that_the_chosen_grader_cannot_read_are_counted(api: Api, database: Database) -> None:
    await furnish(database)
    job = await api.job(params={"grading": {"grader": "choice"}})
    (warning,) = job["warnings"]
    assert warning.startswith("5 of 5 expected answers of dataset 'items' cannot be read by grader 'choice': no answer")


async def test_choices_that_are_not_read_are_told(api: Api) -> None:
    line = {"question": "Which?", "choices": ["x", "y"], "answer": "B"}
    (warning,) = (await api.upload("datasets", "mine", [line])).json()["warnings"]
    assert warning == "`choices` of 1 item were not read: to ask and grade them, --grader choice"
    assert (await api.upload("datasets", "chosen", [line], grader="choice")).json()["warnings"] == []


async def test_gold_documents_that_the_corpus_lacks_are_told_with_an_example(api: Api, database: Database) -> None:
    await furnish(database)
    await run_sql(
        database,
        "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash)"
        " SELECT (SELECT id FROM corpora WHERE name = 'docs'), 0, 'known', hash FROM documents LIMIT 1",
    )
    lines = [
        {"question": "a", "answer": "1", "gold_documents": ["known", "elsewhere"]},
        {"question": "b", "answer": "2", "gold_documents": {"known": 0, "x7": 2}, "id": "second"},
        {"question": "c", "answer": "3", "gold_documents": ["x8"]},
        {"question": "d", "answer": "4"},
    ]
    await api.upload("datasets", "linked", lines)
    (warning,) = (await api.job("dense", dataset="linked"))["warnings"]
    assert warning.startswith("2 of 3 items of dataset 'linked' have no gold document in corpus 'docs' (item 'second'")
    assert "names 'x7'): their recall is 0 whatever is found; choose the corpus that has these ids" in warning
    assert "warnings" not in await api.job("dense", dataset="linked", limit=1)
    assert "warnings" not in await api.job("closed-book", dataset="linked", corpus="docs")


async def test_a_limit_beyond_the_dataset_is_told(api: Api, database: Database) -> None:
    await furnish(database)
    job = await api.job(limit=9)
    assert job["warnings"] == ["the limit is 9, but dataset 'items' has only 5 items: all are asked"]


async def test_a_job_whose_quality_can_reorder_nothing_is_told(api: Api, database: Database) -> None:
    await furnish(database)
    words = {"grading": {"grader": "text"}, "rerank": {"floor": 0}, "rated": None}
    (warning,) = (await api.job("mathrag-gate", params=words))["warnings"]
    assert warning.startswith(
        "quality reorders nothing: 'mathrag-gate' rates one document (`rated`), without a relevance"
    )
    assert "use `hybrid`, which answers the same for less, or raise `rated` or `rerank.floor`" in warning
    for params in ({**words, "context_size": 2}, {"grading": {"grader": "math"}}):
        assert "warnings" not in await api.job("mathrag-gate", params=params)


async def test_a_job_that_asks_nobody_for_relevance_is_told(api: Api, database: Database) -> None:
    await furnish(database)
    (warning,) = (await api.job("mathrag-gate", params={"rerank": {"by": "yes-no"}, "quality": "rules"}))["warnings"]
    assert warning.startswith("'mathrag-gate' does not ask for relevance, so `rerank.by` and")
    assert warning.endswith("set `rerank.floor` as well, such as 0.5")


async def test_a_judge_whose_server_may_give_no_probabilities_is_named(api: Api, database: Database) -> None:
    await furnish(database)
    for pipeline, asking in (
        ("enhanced", {"rerank": {"by": "yes-no"}}),
        ("crag", {"rerank": {"by": "rating"}, "crag": {"evaluator": "reranker"}}),
        ("mathrag-gate", {"rerank": {"floor": None}}),
    ):
        (warning,) = (await api.job(pipeline, params=asking))["warnings"]
        assert warning.startswith("the server of judge 'a-judge' (scripted")
        assert "may give no log-probabilities: then the word in a reply alone tells" in warning
    for pipeline, silent in (("enhanced", {}), ("mathrag-gate", {"quality": "rules"})):
        assert "warnings" not in await api.job(pipeline, params=silent)


async def test_a_generator_whose_server_may_give_no_probabilities_for_votes_is_named(
    api: Api, database: Database
) -> None:
    await furnish(database)
    weighed = {"self_consistency": {"weights": "probability"}}
    (warning,) = (await api.job("self-consistency", params=weighed))["warnings"]
    assert warning.startswith("the server of generator 'a-generator' (scripted")
    assert warning.endswith("then each vote counts 1, as with `self_consistency.weights=count`")
    assert "warnings" not in await api.job("self-consistency", params={})


async def test_a_job_of_an_earlier_release_is_repeated_without_a_floor(
    api: Api, database: Database, owner_url: str
) -> None:
    await furnish(database)
    await api.job("mathrag-gate", params={"grading": {"grader": "text"}, "rated": None, "rerank": {"floor": None}})
    await finished(database)
    params = "replace(replace(convert_from(params, 'UTF8'), :floor, :no_floor), :rated, :all)::bytea"
    fields = {"floor": '"floor":0.5', "no_floor": '"floor":0.0', "rated": '"rated":1', "all": '"rated":null'}
    await force(owner_url, f"UPDATE jobs SET params = {params}", **fields)  # noqa: S608
    reply = await api.http.post("/v1/jobs/a-job/requeue")
    assert reply.status_code == 202, reply.text
    repeated = (await api.get(f"/v1/jobs/{reply.json()['id']}"))["params"]
    assert (repeated["rated"], repeated["rerank"]["floor"]) == (None, 0.0)


SHEET = "\ufeffFrage;Antwort;Stufe\r\nWie viel ist 2+2?;4;1\r\n".encode()


async def test_columns_are_chosen_over_http(api: Api) -> None:
    chosen = {"column": ["question=Frage", "answer=Antwort", "level=Stufe"]}
    reply = await api.upload("datasets", "mine", [SHEET], **chosen)
    assert (reply.status_code, reply.json()["warnings"]) == (201, [])
    (item,) = (await api.get("/v1/datasets/mine/items"))["data"]
    assert (item["question"], item["gold"], item["level"]) == ("Wie viel ist 2+2?", "4", "1")
    missing = await api.upload("datasets", "other", [SHEET], column=["question=Frag", "gold=Antwort"])
    problem = missing.json()
    assert (missing.status_code, problem["line"]) == (422, 2)
    assert "has no column `Frag` for the field `question`; its columns: " in problem["detail"]
    unknown = await api.upload("datasets", "other", [SHEET], column="qustion=Frage")
    assert (unknown.status_code, unknown.json()["field"]) == (422, "column")


async def test_an_array_is_uploaded_like_lines(api: Api) -> None:
    lines = (await api.upload("datasets", "lines", LINES)).json()
    array = (await api.upload("datasets", "array", [json.dumps(LINES, indent=2).encode()])).json()
    assert array["hash"] == lines["hash"]
    broken = await api.upload("datasets", "broken", [b'[{"question": "a"} {"question": "b"}]'])
    assert (broken.status_code, broken.json()["line"]) == (422, 2)


async def test_an_upload_with_a_parameter_that_would_be_ignored_stores_nothing(
    api: Api, database: Database, subtests: pytest.Subtests
) -> None:
    for query, field in (
        ("name=a&graderr=text", "graderr"),
        ("name=a&name=b", "name"),
        ("name=a&grader=text&grader=f1", "grader"),
        ("name=a&delimiter=comma", "delimiter"),
        ("name=a&format=jsonl&reader=x", "format"),
        ("name=a&delimiter=tab&reader=x", "delimiter"),
    ):
        with subtests.test(query=query):
            reply = await api.http.post(f"/v1/datasets?{query}", content=b'{"question": "a", "answer": "b"}')
            assert (reply.status_code, reply.json()["field"]) == (422, field)
            assert await scalar(database, "SELECT count(*) FROM datasets") == 0


# Question sets over REST: made of a graph, held-out facts and maybe a bank, or refused with the next command.

GRAPH = b"""{"relation": "met", "phrase": "has met"}
{"subject": "a", "relation": "met", "object": "b", "time": "2014-09-20"}
{"subject": "b", "relation": "met", "object": "c", "time": "2014-09-21"}
{"subject": "a", "relation": "saw", "object": "c", "time": "2014-09-22"}
"""
FACTS = b"a\tmet\tc\t2014-09-25\na\tmet\tb\t2014-09-25\nb\tsaw\ta\t2014-09-26\n"
RULE = Rule(head=Atom("met", 0, 1), body=(Atom("saw", 0, 1),), support=1, body_size=2, confidence=0.5)
QUERY = "SELECT query FROM items i JOIN datasets d ON d.id = i.dataset_id WHERE d.name = 'q' ORDER BY ordinal"


@pytest.fixture
async def graph_api(empty_api: Api) -> Api:
    reply = await empty_api.http.post("/v1/graphs", params={"name": "g"}, content=GRAPH)
    assert reply.status_code == 201, reply.text
    return empty_api


async def make(graph_api: Api, content: bytes = FACTS, name: str = "q", **query: Any) -> httpx2.Response:
    return await graph_api.http.post(
        "/v1/datasets/from-graph", params={"name": name, "graph": "g", **query}, content=content
    )


async def store_bank(database: Database, name: str, graph_hash: str | None, found: Sequence[Rule] = (RULE,)) -> None:
    async def batches() -> AsyncIterator[Sequence[Rule]]:
        yield found

    await rules.create_imported(database, name, ImportOrigin("tlogic", graph_hash), batches())


async def test_a_question_set_is_a_dataset_with_the_rules_that_lead_there(graph_api: Api, database: Database) -> None:
    graph = await graph_api.get("/v1/graphs/g")
    await store_bank(database, "bank", graph["hash"])
    bank = await graph_api.get("/v1/rules/bank")
    reply = await make(graph_api, rules="bank", side="object")
    made = reply.json()
    assert (reply.status_code, reply.headers["location"]) == (201, "/v1/datasets/q")
    assert (made["items"], made["grader"], made["hash"]) == (2, "text", (await graph_api.get("/v1/datasets/q"))["hash"])
    assert made["counts"] == {
        "available": 2, "answers": 3, "answered_by_graph": 0, "unnamed_answers": 0, "not_after_graph": 0,
        "with_leads": 1, "with_documents": 1,
        "left_out": {"repeated": 0, "known": 0, "unknown_relation": 0, "unknown_entity": 0, "many_answers": 0,
                     "answered": 0, "long": 0},
    }  # fmt: skip
    items = {item["relation"]: item for item in (await graph_api.get("/v1/datasets/q/items"))["data"]}
    assert (items["met"]["question"], items["met"]["gold"]) == ("On 2014-09-25, a has met whom or what?", "b")
    assert (items["met"]["gold_documents"], items["saw"]["gold_documents"]) == ({"2": 1}, None)
    queries = {query["relation"]: query for (query,) in await rows(database, QUERY)}
    assert queries["met"] == {
        "relation": "met", "entity": "a", "time": "2014-09-25", "bank": bank["hash"],
        "leads": [{"rule": 0, "documents": ["2"]}],
    }  # fmt: skip


async def test_the_same_command_again_is_harmless_however_the_facts_are_packed(graph_api: Api) -> None:
    first = await make(graph_api, limit=2)
    again = await make(graph_api, gzip.compress(FACTS), limit=2)
    assert (first.status_code, again.status_code, again.json()) == (201, 200, first.json())
    other = await make(graph_api, limit=2, grader="set")
    assert (other.status_code, other.json()["hint"]) == (409, "choose another name")


async def test_templates_come_with_the_facts(graph_api: Api) -> None:
    template = (
        b'{"relation": "met", "object_question": "Whom met {subject}?", "subject_question": "Who met {object}?"}\n'
    )
    fact = b'{"subject": "c", "relation": "met", "object": "b", "time": "2014-09-25"}\n'
    assert (await make(graph_api, template + fact)).status_code == 201
    asked = [item["question"] for item in (await graph_api.get("/v1/datasets/q/items"))["data"]]
    assert sorted(asked) == ["On 2014-09-25, Who met b?", "On 2014-09-25, Whom met c?"]
    refused = await make(graph_api, fact + template.replace(b"{subject}", b"{who}"), name="r")
    assert (refused.status_code, refused.json()["type"]) == (422, "urn:mathrag:invalid_line")
    assert "upload, line 2: `object_question` has the slot {who}" in refused.json()["detail"]


async def test_what_makes_no_questions_is_refused(
    graph_api: Api, database: Database, subtests: pytest.Subtests
) -> None:
    await store_bank(database, "foreign", "ab" * 32)
    likes = Rule(head=Atom("likes", 0, 1), body=RULE.body, support=1, body_size=2, confidence=0.5)
    await store_bank(database, "other-heads", None, [likes])
    for content, query, status, said in (
        (b"a\tmet\tc\n", {}, 422, "each fact has no time, but graph 'g' has a date"),
        (b"a\tmet\tc\t7\n", {}, 422, "each fact has a whole number as time, but graph 'g' has a date"),
        (b"a\tmet\tb\t2014-09-20\n", {}, 422, "yield no question"),
        (b"a\tmet\n", {}, 422, "line 1: has 2 columns"),
        (FACTS, {"graph": "gg"}, 404, "no graph 'gg'"),
        (FACTS, {"rules": "none"}, 404, "none"),
        (FACTS, {"rules": "foreign"}, 409, "bank 'foreign' was mined from another graph than 'g'"),
        (FACTS, {"rules": "other-heads"}, 422, "bank 'other-heads' has no rule for any relation of the facts"),
        (FACTS, {"side": "both ends"}, 422, "side"),
        (FACTS, {"grader": "math"}, 422, "grader"),
        (FACTS, {"limit": 0}, 422, "limit"),
    ):
        with subtests.test(query=query):
            reply = await make(graph_api, content, **query)
            assert (reply.status_code, said in reply.json()["detail"]) == (status, True), reply.text
            assert (await graph_api.get("/v1/datasets"))["data"] == []


async def test_a_bank_that_is_being_mined_has_no_rules_yet(graph_api: Api) -> None:
    body = {"name": "bank", "graph": "g", "mining": {"miner": "tlogic"}}
    assert (await graph_api.http.post("/v1/rules", json=body)).status_code == 202
    reply = await make(graph_api, rules="bank")
    assert (reply.status_code, reply.json()["hint"]) == (409, "wait until mining has ended")


async def test_uploaded_items_name_their_relation(graph_api: Api) -> None:
    lines = [{"question": "Whom?", "relation": "met"}, {"question": "Who?", "query": {"relation": "saw"}}]
    assert (await graph_api.upload("datasets", "u", [*lines, {"question": "Why?"}])).status_code == 201
    assert [item["relation"] for item in (await graph_api.get("/v1/datasets/u/items"))["data"]] == ["met", "saw", None]


# Training data over REST: of a dataset that was made from a graph, with the bank whose rules lead to its answers.

ACQUAINTANCES = "".join(f"p{at}\tmet\tq{at}\np{at}\tsued\tq{(at + 3) % 9}\n" for at in range(9)) + "p0\tknows\tp1\n"
FACTS_TO_LEARN = "".join(f"p{at}\tknows\tq{at}\n" for at in range(5))
RULES = "?a  met  ?b   => ?a  knows  ?b\t0.5\t0.5\t0.5\t5\t10\t10\t?a\n"
OTHER_RULES = RULES.replace("met", "sued")


@pytest.fixture
async def mined_api(empty_api: Api) -> Api:
    await send(empty_api, "/v1/graphs", ACQUAINTANCES, name="g")
    await send(empty_api, "/v1/rules/import", RULES, name="bank")
    await send(empty_api, "/v1/rules/import", OTHER_RULES, name="other")
    await send(empty_api, "/v1/datasets/from-graph", FACTS_TO_LEARN, name="led", graph="g", rules="bank")
    return empty_api


async def send(mined_api: Api, path: str, content: str, **query: str) -> None:
    reply = await mined_api.http.post(path, params=query, content=content)
    assert reply.status_code == 201, reply.text


async def export(mined_api: Api, dataset: str = "led", **query: Any) -> httpx2.Response:
    return await mined_api.http.get(
        f"/v1/datasets/{dataset}/training", params={"rules": "bank", "graph": "g", **query}
    )  # fmt: skip


async def lines(mined_api: Api, **query: Any) -> list[Any]:
    reply = await export(mined_api, **query)
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.text.splitlines()]


async def test_each_question_and_rule_comes_with_its_documents(mined_api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await lines(mined_api)
    items = (await mined_api.get("/v1/datasets/led/items"))["data"]
    assert [line["query"] for line in found] == [item["question"] for item in items]
    asked = next(line for line in found if "p3" in line["query"])
    assert asked["rule"] == "[Entity1, met, Entity2] leads to [Entity1, knows, Entity2]"
    assert asked["positives"] == ["p3 met q3."]
    assert set(asked["negatives"]) == {"p3 sued q6.", "p0 knows p1."}
    monkeypatch.setattr(datasets, "BATCH", 3)
    assert await lines(mined_api) == found


async def test_the_other_forms_tell_the_same(mined_api: Api) -> None:
    triplet = next(line for line in await lines(mined_api, **{"as": "triplets"}) if " p3 " in f" {line['anchor']}")
    assert (triplet["positive"], triplet["negative"]) in [
        ("p3 met q3.", each) for each in ("p3 sued q6.", "p0 knows p1.")
    ]
    instructions = await lines(mined_api, **{"as": "instructions"})
    assert {line["answer"] for line in instructions} == {*(f"p{at}" for at in range(5)), *(f"q{at}" for at in range(5))}
    messages = await lines(mined_api, **{"as": "messages", "cot": "true"})
    assert "leads to [Entity1, knows, Entity2]\np" in messages[0]["messages"][1]["content"]


async def test_a_limit_draws_questions_by_the_seed(mined_api: Api) -> None:
    whole, part = (
        [json.dumps(line) for line in await lines(mined_api)],
        [json.dumps(each) for each in await lines(mined_api, limit=4)],
    )
    assert len(part) == 4
    assert part == [line for line in whole if line in part]
    drawn = {tuple(line["query"] for line in await lines(mined_api, limit=4, seed=seed)) for seed in range(5)}
    assert len(drawn) > 1


async def test_what_cannot_be_exported_is_refused_with_the_reason(mined_api: Api, subtests: pytest.Subtests) -> None:
    await mined_api.upload("datasets", "plain", [{"question": "1 + 1?", "answer": "2"}])
    await send(mined_api, "/v1/datasets/from-graph", "p0\tmet\tq5\n", name="unled", graph="g", limit="1")
    for dataset, query, status, said in (
        ("led", {"rules": "other"}, 409, "another rule bank than 'other'"),
        ("led", {"rules": "none"}, 404, "no rule bank 'none'"),
        ("none", {}, 404, "no dataset 'none'"),
        ("led", {"graph": "none"}, 404, "no graph 'none'"),
        ("led", {"graph": ""}, 404, "no graph ''"),
        ("plain", {}, 422, "'plain' has no questions about a graph"),
        ("unled", {}, 422, "no rule leads to an answer of dataset 'unled'"),
        ("led", {"as": "poems"}, 422, "as"),
        ("led", {"limit": 0}, 422, "limit"),
    ):
        with subtests.test(dataset=dataset, query=query):
            reply = await export(mined_api, dataset, **query)
            assert reply.status_code == status, reply.text
            assert said in reply.text


async def test_the_graph_of_an_imported_bank_must_be_named(mined_api: Api) -> None:
    reply = await mined_api.http.get("/v1/datasets/led/training", params={"rules": "bank"})
    assert (reply.status_code, "--graph" in reply.json()["hint"]) == (422, True)


# A corpus is scanned for a dataset's own questions, batch by batch.

TEN = "one two three four five six seven eight nine ten"


@pytest.fixture
async def leaking_api(empty_api: Api) -> Api:
    lines = [
        {"id": "near", "problem": f"{TEN} here", "text": "so it is"},
        {"id": "other", "problem": "What is music?", "text": "sound"},
        {"id": "passage", "text": TEN},
        {"id": "same", "problem": " what is 2 + 2?", "text": "4"},
        {"id": "again", "problem": "What is 2 + 2?", "text": "it is 4"},
        {"id": "late", "problem": " ", "text": "a passage, too"},
    ]
    await empty_api.upload("corpora", "mine", lines)
    await empty_api.upload(
        "datasets", "asked", [{"question": q, "answer": "4"} for q in (TEN, "Why?", "What is 2 + 2?", "No.")]
    )
    return empty_api


@pytest.mark.parametrize(("block", "batch"), [(5000, 250), (1, 1), (2, 5)])
async def test_every_question_is_held_against_every_document(
    leaking_api: Api, monkeypatch: pytest.MonkeyPatch, block: int, batch: int
) -> None:
    monkeypatch.setattr(leaks, "BLOCK", block)
    monkeypatch.setattr(leaks, "BATCH", batch)
    found = await leaking_api.get("/v1/corpora/mine/contamination", dataset="asked")
    assert [found[name] for name in ("items", "documents", "passages", "exact", "near", "share", "pairs")] == [
        4, 6, 2, 1, 1, 0.5, 3,
    ]  # fmt: skip
    assert found["same_answer"] == 2
    assert {(each["index"], each["id"], each["exact"], each["same_answer"]) for each in found["examples"]} == {
        (0, "near", False, False), (2, "same", True, True), (2, "again", True, True),
    }  # fmt: skip


async def test_what_is_not_there_is_said(leaking_api: Api) -> None:
    for corpus, dataset in (("nobodys", "asked"), ("mine", "nobodys")):
        reply = await leaking_api.http.get(f"/v1/corpora/{corpus}/contamination", params={"dataset": dataset})
        assert (reply.status_code, "nobodys" in reply.json()["detail"]) == (404, True)
    assert (await leaking_api.http.get("/v1/corpora/mine/contamination")).status_code == 422
