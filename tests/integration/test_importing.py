"""Answers of another system, imported and graded."""

import csv
import io
import json
import re
import zipfile
from typing import Any

import httpx2
import pytest
from fastapi import Request
from pyarrow import parquet

from mathrag.errors import BadRequest
from mathrag.reading.rows import Format
from services.orchestrator.api import uploads
from shared.audit import check
from shared.runtime import purge
from shared.settings import REPOSITORY, Limits
from shared.storage.database import Database
from tests.integration.api import Api, finished, serving
from tests.integration.scene import rows, scalar
from tests.integration.tampering import as_owner
from tests.unit.shared.ingest.test_uploads import as_csv, as_jsonl, as_parquet
from tests.unit.upload_defects import CSV, LINES, PARQUET, WHOLE

pytestmark = pytest.mark.anyio


LOGS = REPOSITORY / "tests/unit/shared/ingest/logs"
ALL = [
    {"index": n, "text": f"So it is $\\boxed{{{2 * n}}}$.", "seconds": 1.5, "completion_tokens": 7} for n in range(5)
]


async def imported(api: Api, lines: Any, name: str = "theirs", **query: Any) -> Any:
    reply = await api.upload("jobs/import", name, lines, dataset="items", **query)
    assert reply.status_code == 202, reply.text
    return reply.json()


async def refused(api: Api, lines: Any, name: str = "theirs", **query: Any) -> dict[str, Any]:
    reply = await api.upload("jobs/import", name, lines, **{"dataset": "items", **query})
    assert reply.status_code in (404, 413, 422), reply.text
    said: dict[str, Any] = reply.json()
    return said


async def test_answers_are_graded_like_those_of_any_job(api: Api, database: Database) -> None:
    job = await imported(api, ALL)
    assert (job["pipeline"], job["request_counts"]["total"], job.get("warnings")) == ("imported", 5, None)
    await finished(database)
    report = await api.get("/v1/jobs/theirs/report")
    assert (report["state"], report["accuracy"]["graded"]) == ("completed", 5)
    assert await rows(database, "SELECT answer, extraction FROM outcomes ORDER BY sample_id") == [
        (str(2 * n), "ok") for n in range(5)
    ]
    assert await rows(database, "SELECT DISTINCT role FROM calls") == [("grade",)]
    assert await check(database, job["id"]) == []


async def test_what_was_recorded_stands_in_the_sample(api: Api, database: Database) -> None:
    await imported(api, ALL)
    await finished(database)
    sample = await api.get("/v1/jobs/theirs/samples/3")
    (decision,) = sample["outcome"]["trace"]["decisions"]
    assert sample["text"] == "So it is $\\boxed{6}$."
    assert (decision["stage"], decision["action"]) == ("imported", "given")
    assert decision["detail"] == {"text": "So it is $\\boxed{6}$.", "seconds": 1.5, "completion_tokens": 7}


async def test_the_page_of_a_sample_says_that_nothing_is_known_of_how_it_came_about(
    api: Api, database: Database
) -> None:
    hostile = {"index": 1, "text": "<script>alert(1)</script> $\\boxed{2}$"}
    await imported(api, [ALL[0], hostile, {"index": 2, "text": "$\\boxed{7}$"}])
    await finished(database)
    said = (await api.http.get("/jobs/theirs/samples/0")).text
    assert "so its prompt and model are unknown" in said
    assert "The file says: 1.5 s, ? + 7 tokens." in said
    assert "No search was made" not in said
    assert "its prompt is unknown" in (await api.http.get("/jobs/theirs/samples/2")).text
    bare = (await api.http.get("/jobs/theirs/samples/1")).text
    assert ("The file says" in bare, "<script>alert" in bare) == (False, False)


async def test_a_job_is_over_the_items_that_have_an_answer(api: Api, database: Database) -> None:
    job = await imported(api, [ALL[3], ALL[1]])
    assert job["warnings"] == ["3 items of the dataset have no answer and will not be part of the job"]
    await finished(database)
    assert await rows(database, "SELECT ordinal FROM samples ORDER BY ordinal") == [(1,), (3,)]
    assert (await api.get("/v1/jobs/theirs"))["request_counts"]["completed"] == 2
    assert await check(database, job["id"]) == []


async def test_the_pages_step_over_items_and_repeats_without_an_answer(api: Api, database: Database) -> None:
    lines = [{"index": 1, "answer": "2"}, {"index": 1, "answer": "2", "repeat": 2}, {"index": 4, "answer": "8"}]
    job = await imported(api, lines)
    await finished(database)
    pages = [f"/jobs/{job['id']}/samples/{place}" for place in ("1", "1?repeat=2", "4")]
    for before, page, after in zip([None, *pages], pages, [*pages[1:], None], strict=False):
        shown = (await api.http.get(page)).text
        assert (_linked(shown, "prev"), _linked(shown, "next")) == (before, after)


def _linked(page: str, rel: str) -> str | None:
    found = re.search(rf'<a href="([^"]+)" rel="{rel}"', page)
    return found and found[1]


async def test_equal_answers_to_one_gold_are_graded_once(api: Api, database: Database) -> None:
    lines = [{"index": 1, "answer": "2", "repeat": repeat} for repeat in range(4)]
    await imported(api, lines)
    await imported(api, lines, name="again")
    await finished(database)
    assert await scalar(database, "SELECT count(*) FROM calls") == 1
    assert await scalar(database, "SELECT count(*) FROM samples") == 8
    report = await api.get("/v1/jobs/theirs/report")
    assert not any("shared their replies" in note for note in report["notes"])


async def test_repeats_may_be_counted_from_one(api: Api, database: Database) -> None:
    lines = [{"index": 0, "answer": "0", "repeat": repeat} for repeat in (1, 2)]
    assert "first_repeat" in (await refused(api, lines))["hint"]
    job = await imported(api, lines, first_repeat=1)
    assert job["repeats"] == 2
    await finished(database)
    assert await check(database, job["id"]) == []


async def test_items_are_named_by_id_index_or_question(api: Api, database: Database) -> None:
    table = io.StringIO()
    csv.writer(table).writerows([["asked", "said", "took"], ["What is 2 plus 2?", "4", "0.25"]])
    body = table.getvalue().encode()
    columns = ["question=asked", "answer=said", "seconds=took"]
    job = await imported(api, [body], format="csv", column=columns)
    await finished(database)
    assert await rows(database, "SELECT s.ordinal, o.answer FROM samples s JOIN outcomes o ON o.sample_id = s.id") == [
        (2, "4")
    ]
    assert await check(database, job["id"]) == []


async def test_an_imported_job_is_compared_with_another(api: Api, database: Database) -> None:
    await imported(api, ALL)
    await imported(api, [{"index": n, "answer": "0"} for n in range(4)], name="worse")
    await finished(database)
    found = await api.get("/v1/comparison", job=["theirs", "worse"])
    assert found["pairs"][0]["items"] == 4, found


async def test_a_line_that_cannot_be_used_is_named(api: Api, database: Database, subtests: pytest.Subtests) -> None:
    for line, said in (
        ({"id": "nobody", "answer": "1"}, "no item of the dataset has the id 'nobody'"),
        ({"index": 5, "answer": "1"}, "the dataset has 5 items"),
        ({"index": -1, "answer": "1"}, "out of range"),
        ({"index": True, "answer": "1"}, "`index` is a boolean"),
        ({"index": 1.5, "answer": "1"}, "write a whole number"),
        ({"question": "What is 2 plus 2 ?", "answer": "1"}, "the exact question"),
        ({"answer": "1"}, "does not name the item"),
        ({"index": 1}, "has no answer"),
        ({"index": 1, "answer": ["1"]}, "`answer` is an array"),
        ({"index": 1, "text": 3}, "`text` is a number"),
        ({"index": 1, "answer": "1", "seconds": -1}, "write seconds"),
        ({"index": 1, "answer": "1", "seconds": "soon"}, "write seconds"),
        ({"index": 1, "answer": "1", "completion_tokens": "1e3"}, "write a whole number"),
        ({"index": 1, "answer": "1", "repeat": 1000}, "write a number from 0 (`first_repeat`) to 999"),
        ({"index": 0, "answer": "1"}, "which line 1 answers already"),
        (b'{"index": 1, "answer": "a\\u0000b"}\n', "u0000"),
        (b'{"index": 1, "answer": "cut o', "is not JSON"),
        (b"[1, 2]\n", "contains an array"),
    ):
        with subtests.test(line=line):
            found = await refused(api, [ALL[0], line])
            assert (found["line"], said in found["detail"]) == (2, True), found
            assert await scalar(database, "SELECT count(*) FROM given") == 0
            assert await scalar(database, "SELECT count(*) FROM jobs") == 0


async def test_a_line_over_the_limit_and_a_wrong_kind_of_file_are_refused(api: Api, database: Database) -> None:
    long = b'{"index": 1, "text": "' + b"x" * (1 << 20) + b'"}\n'
    for body, said in ((long, "is longer than"), (b"PAR1" + b"x" * 99, "is Parquet"), (b"PK\x03\x04", "is a ZIP")):
        assert said in (await refused(api, [body]))["detail"]
    assert await scalar(database, "SELECT count(*) FROM given") == 0


async def test_logs_of_other_programs_are_read_as_they_are(api: Api, database: Database) -> None:
    job = await imported(api, [(LOGS / "lm_eval-0.4.13.jsonl").read_bytes()], layout="lm-eval")
    assert job["request_counts"]["total"] == 6
    log = [{"question": f"What is {n} plus {n}?", "output": {"pred": f"\\boxed{{{2 * n}}}"}} for n in range(5)]
    job = await imported(api, [log], "more", layout="flashrag")
    assert job["request_counts"]["total"] == 5
    await finished(database)
    assert (await api.get("/v1/jobs/more/report"))["accuracy"]["value"] == 1.0


async def test_a_system_that_wrote_nothing_or_only_reasoned_has_answered_wrong(api: Api, database: Database) -> None:
    texts = ["\\boxed{0}", "", None, "<think>\\boxed{6}"]
    log = [{"doc_id": n, "resps": [[text]], "filter": "none"} for n, text in enumerate(texts)]
    job = await imported(api, log, layout="lm-eval")
    assert job["warnings"][1] == "2 answers are empty and count as wrong: upload, line 2; upload, line 3"
    await finished(database)
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    assert (report["accuracy"]["correct"], report["accuracy"]["graded"]) == (1, 4), report["accuracy"]
    assert report["extraction"] == {"empty": 2, "ok": 1, "only_reasoning": 1}
    assert report["endings"]["extraction"] == 3
    found = (await api.get(f"/v1/jobs/{job['id']}/samples", ending="extraction"))["data"]
    assert [each["ending_reason"] for each in found] == [
        "the reply is empty", "the reply is empty", "the reply ends in its reasoning",
    ]  # fmt: skip
    assert await check(database, job["id"]) == []


@pytest.mark.parametrize(("column", "right"), [("answer", "2"), ("text", "\\boxed{2}")])
async def test_an_empty_cell_and_a_null_are_empty_answers(
    api: Api, database: Database, column: str, right: str
) -> None:
    await imported(api, [f"index,{column}\n0,\n1,{right}\n".encode()], format="csv")
    await imported(api, [{"index": 0, column: None}, {"index": 1, column: right}], "nulls")
    await imported(api, [{"index": 0, "prediction": " "}], "mapped", column=f"{column}=prediction")
    await finished(database)
    for name, graded in (("theirs", 2), ("nulls", 2), ("mapped", 1)):
        accuracy = (await api.get(f"/v1/jobs/{name}/report"))["accuracy"]
        assert (accuracy["correct"], accuracy["graded"]) == (graded - 1, graded), (name, accuracy)


async def test_nan_refuses_an_answer_only_in_a_column_that_is_read(api: Api, database: Database) -> None:
    await imported(api, [b'{"index": 0, "answer": "0", "loss": NaN, "score": NaN}\n'])
    await finished(database)
    assert (await api.get("/v1/jobs/theirs/report"))["accuracy"]["correct"] == 1
    said = (await refused(api, [b'{"index": 0, "answer": "0", "seconds": NaN}\n'], "again"))["detail"]
    assert "`seconds`" in said


async def test_a_sample_that_failed_in_the_other_system_is_left_out_and_named(api: Api, database: Database) -> None:
    output = {"choices": [{"message": {"content": "\\boxed{2}"}}]}
    failed = {"id": 1, "output": {"choices": []}, "error": {"message": "no route"}}
    log = {"samples": [failed, {"id": 2, "input": "What is 1 plus 1?", "output": output}]}
    job = await imported(api, [log], layout="inspect")
    assert job["warnings"][1:] == [
        "1 line without an answer was left out, because the other system failed",
        "upload, line 1: has no answer, because the other system failed: no route",
    ]
    await finished(database)
    assert (await api.get("/v1/jobs/theirs/report"))["accuracy"]["graded"] == 1


GSM8K = [
    {
        "doc_id": n, "doc": {"question": f"What is {n} plus {n}?"}, "resps": [[f"That gives {2 * n}.\n#### {2 * n}"]],
        "filtered_resps": [str(2 * n)], "filter": "strict-match", "metrics": ["exact_match"], "exact_match": 1.0,
    }
    for n in range(5)
]  # fmt: skip


async def test_a_log_of_gsm8k_is_graded_as_its_own_harness_graded_it(api: Api, database: Database) -> None:
    wrong = {**GSM8K[4], "exact_match": 0.0}
    await imported(api, [*GSM8K[:4], wrong], layout="lm-eval")
    bare = [{name: value for name, value in row.items() if name != "filtered_resps"} for row in GSM8K]
    await imported(api, bare, "bare", layout="lm-eval")
    await finished(database)
    report = await api.get("/v1/jobs/theirs/report")
    assert report["accuracy"]["value"] == 1.0
    assert report["theirs"] == {"right": 4, "scored": 5, "differing": 1, "samples": [4]}
    assert report["notes"] == ["the imported answers were matched with their items by: question 5"]
    assert report["extracted_by"] == {"given": 5}
    report = await api.get("/v1/jobs/bare/report")
    assert (report["accuracy"]["value"], report["extracted_by"]) == (1.0, {"marked": 5})


async def test_items_are_matched_by_id_then_by_question_then_by_order(api: Api, database: Database) -> None:
    rows_ = [
        {"id": 1, "question": "What is 3\nplus  3?", "index": 0, "answer": "6"},
        {"id": "x", "question": "What is 4 plus 4, please?", "index": 4, "answer": "8"},
        {"question": "What is 0 plus 0?", "index": 2, "answer": "0"},
    ]
    job = await imported(api, rows_)
    assert job["warnings"][1].startswith("1 answer was matched by order, ")
    await finished(database)
    assert await rows(database, "SELECT s.ordinal, o.answer FROM samples s JOIN outcomes o ON o.sample_id = s.id"
        " ORDER BY s.ordinal") == [(0, "0"), (3, "6"), (4, "8")]  # fmt: skip
    (note,) = (await api.get("/v1/jobs/theirs/report"))["notes"]
    assert note.endswith("their order, because neither id nor question is in the dataset, 1; question 2")


async def test_a_job_in_which_no_answer_was_found_says_so_in_its_headline(api: Api, database: Database) -> None:
    await imported(api, [{"index": n, "text": f"I get {2 * n}"} for n in range(5)])
    await imported(api, [{"index": n, "text": f"I get {2 * n}"} for n in range(5)], "numbers", grader="last-number")
    await finished(database)
    assert "In 5 of 5 answers no final answer could be found" in (await api.http.get("/jobs/theirs")).text
    report = await api.get("/v1/jobs/numbers/report")
    assert (report["accuracy"]["value"], report["grader"]) == (1.0, "last-number")
    assert report["extracted_by"] == {"last_number": 5}


async def test_a_log_is_refused_like_any_other_upload(api: Api, database: Database) -> None:
    log = (LOGS / "inspect_ai-0.3.285.eval").read_bytes()
    assert "has the id 'q" in (await refused(api, [log], layout="inspect"))["detail"]
    assert "truncated or damaged" in (await refused(api, [log[:-30]], layout="inspect"))["detail"]
    bomb = io.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("samples/1_epoch_1.json", b"[" + b" " * (17 << 20))
    assert "at most 16777216 are read" in (await refused(api, [bomb.getvalue()], layout="inspect"))["detail"]
    assert "16777216 bytes in one JSON value" in (await refused(api, [b" " * (17 << 20)], layout="flashrag"))["detail"]
    for query in ({"format": "csv"}, {"delimiter": "comma"}, {"reader": "theirs"}):
        assert (
            f"`{next(iter(query))}` would be ignored" in (await refused(api, [], layout="inspect", **query))["detail"]
        )
    assert await scalar(database, "SELECT count(*) FROM given") == 0


async def test_a_log_that_would_take_much_memory_harms_nobody_else(api: Api) -> None:
    lists = b'{"samples": [' + b"[[]]," * (3 << 20) + b"[]]}"
    said = await refused(api, [lists], layout="inspect")
    assert said["detail"] == "upload: the log of inspect needs more than 512 MiB of memory to unpack"
    assert "mathrag job import" in said["hint"]


async def test_lines_that_cannot_be_used_may_be_left_out(api: Api) -> None:
    job = await imported(api, [*ALL, {"id": "nobody", "answer": "1"}], on_error="skip")
    count, named = job["warnings"]
    assert count == "1 unusable line was left out"
    assert named.startswith("upload, line 6: no item of the dataset has the id 'nobody'")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"column": ["answer"]}, "is not of the form FIELD=COLUMN"),
        ({"column": ["anser=x"]}, "unknown field 'anser'"),
        ({"column": ["answer=x", "answer=y"]}, "given twice"),
        ({"column": ["answer=prediction"]}, "no column `prediction`"),
        ({"dataset": "nothing"}, "no dataset"),
        ({"name": "a b"}, "name"),
    ],
)
async def test_a_wrong_mapping_is_refused(api: Api, query: dict[str, Any], said: str) -> None:
    assert said in (await refused(api, ALL, **query))["detail"]


async def test_an_upload_without_answers_is_refused(api: Api) -> None:
    assert "no answers" in (await refused(api, []))["detail"]


async def test_a_name_is_used_once(api: Api) -> None:
    await imported(api, ALL)
    assert (await api.upload("jobs/import", "theirs", ALL, dataset="items")).status_code == 409


async def test_a_long_hostile_answer_is_stored_as_it_is(api: Api, database: Database) -> None:
    text = "<script>alert(1)</script>\u202e" + "x" * 1_000_000
    job = await imported(api, [{"index": 0, "text": text}])
    await finished(database)
    stored = await scalar(database, "SELECT content FROM given")
    assert json.loads(stored)["text"] == text  # type: ignore[arg-type]
    assert await check(database, job["id"]) == []


async def test_grading_goes_on_after_a_restart(api: Api, database: Database, redis_url: str) -> None:
    await imported(api, ALL)
    async with serving(database, redis_url) as other:
        await finished(database)
        assert (await other.get("/v1/jobs/theirs"))["state"] == "completed"


async def test_an_imported_job_is_neither_submitted_nor_requeued(api: Api, database: Database) -> None:
    body = {"name": "j", "dataset": "items", "pipeline": "imported"}
    assert "mathrag job import" in (await api.http.post("/v1/jobs", json=body)).json()["hint"]
    await imported(api, ALL)
    await finished(database)
    reply = await api.http.post("/v1/jobs/theirs/requeue")
    assert (reply.status_code, "mathrag job import" in reply.json()["hint"]) == (409, True)


@pytest.mark.parametrize(
    "change", ["content = 'x'", 'content = \'{"answer":"7"}\'', "ordinal = ordinal + 10", "repeat = 9"]
)
async def test_a_changed_answer_is_found(api: Api, database: Database, owner_url: str, change: str) -> None:
    job = await imported(api, [{"index": 1, "answer": "2"}])
    await finished(database)
    assert await check(database, job["id"]) == []
    owner = Database(owner_url, pinned=False)
    found = await as_owner(owner, job["id"], f"UPDATE given SET {change}")  # noqa: S608 - constants
    await owner.close()
    assert found


async def test_a_purge_takes_the_answers_along(api: Api, database: Database, owner_url: str) -> None:
    await imported(api, ALL)
    await finished(database)
    owner = Database(owner_url, pinned=False)
    (content,) = await purge.find_jobs(owner, ["theirs"])
    await purge.purge(owner, content, "a-tester")
    await owner.close()
    assert await scalar(database, "SELECT count(*) FROM given") == 0


# What an upload is answered: every defect with its line, good lines without the bad ones where that is asked for.

DOCUMENTS: list[dict[str, Any]] = [{"id": "a", "text": "x", "problem": "p"}, {"id": "b", "text": "y", "problem": "q"}]
NOTHING = "SELECT (SELECT count(*) FROM corpora) + (SELECT count(*) FROM documents) + (SELECT count(*) FROM datasets)"


async def send(empty_api: Api, what: str, content: bytes, media: str = "", **query: Any) -> httpx2.Response:
    headers = {"content-type": media} if media else {}
    return await empty_api.http.post(f"/v1/{what}", params={"name": "mine", **query}, content=content, headers=headers)


async def test_no_body_is_an_error_of_ours(empty_api: Api, database: Database) -> None:
    for body in [*WHOLE, *LINES]:
        reply = await send(empty_api, "corpora", body.content, format=body.format.value)
        problem = reply.json()
        assert (reply.status_code, problem["type"], problem["line"]) == (422, "urn:mathrag:invalid_line", body.line)
        assert body.said in problem["detail"], body.what
        assert (await send(empty_api, "datasets", body.content, format=body.format.value)).status_code in (
            200,
            201,
            409,
            422,
        )
    assert await scalar(database, "SELECT count(*) FROM corpora") == 0


@pytest.mark.parametrize("body", [each for each in LINES if each.content.startswith((CSV, PARQUET[:4]))], ids=str)
async def test_good_lines_are_stored_where_bad_ones_may_be_skipped(empty_api: Api, body: Any) -> None:
    reply = await send(empty_api, "corpora", body.content, on_error="skip")
    if reply.status_code == 422:
        assert reply.json()["line"] == body.line  # there was no good one
        return
    made = reply.json()
    assert (reply.status_code, made["rejected"], made["rejected_lines"][0]["line"]) == (201, 1, body.line)
    assert body.said in made["rejected_lines"][0]["message"]


@pytest.mark.parametrize("written", [as_jsonl, as_csv, as_parquet])
async def test_every_format_is_the_same_corpus(empty_api: Api, written: Any) -> None:
    assert (await send(empty_api, "corpora", as_jsonl(DOCUMENTS))).status_code == 201
    assert (await send(empty_api, "corpora", written(DOCUMENTS))).status_code == 200


@pytest.mark.parametrize(
    ("media", "content"),
    [
        ("application/x-ndjson", as_jsonl(DOCUMENTS)),
        ("text/csv; charset=utf-8", as_csv(DOCUMENTS)),
        ("text/tab-separated-values", as_csv(DOCUMENTS, "\t")),
        ("application/vnd.apache.parquet", as_parquet(DOCUMENTS)),
        ("application/octet-stream", as_parquet(DOCUMENTS)),
        ("application/x-www-form-urlencoded", as_csv(DOCUMENTS)),
    ],
)
async def test_the_content_type_may_say_the_format(empty_api: Api, media: str, content: bytes) -> None:
    assert (await send(empty_api, "corpora", content, media)).status_code == 201


async def test_a_content_type_that_contradicts_the_content_is_refused(empty_api: Api) -> None:
    assert (
        "is parquet, not csv" in (await send(empty_api, "corpora", as_parquet(DOCUMENTS), "text/csv")).json()["detail"]
    )
    form = await send(empty_api, "corpora", b"--x\r\n", "multipart/form-data; boundary=x")
    assert (form.status_code, "curl --data-binary @FILE" in form.json()["hint"]) == (422, True)


async def test_a_rejected_upload_names_all_that_is_wrong(empty_api: Api, database: Database) -> None:
    reply = await empty_api.upload("datasets", "mine", [{"question": "?"}, b"[]\n", {"question": 1}, {"answer": "4"}])
    problem = reply.json()
    assert (reply.status_code, problem["line"], len(problem["others"])) == (422, 2, 2)
    assert "upload, line 3: `question` is a number" in problem["others"][0]
    assert problem["others"][1].startswith("upload, line 4: has no question (it has answer); write it into `question`")
    assert await scalar(database, NOTHING) == 0


async def test_skipped_lines_are_listed_up_to_a_hundred_and_counted_to_the_end(
    empty_api: Api, database: Database
) -> None:
    lines = [{"question": "first"}, *([b"{\n"] * 150), {"question": "last"}]
    reply = await empty_api.upload("datasets", "mine", lines, on_error="skip")
    made = reply.json()
    assert (reply.status_code, made["items"], made["rejected"], len(made["rejected_lines"])) == (201, 2, 150, 100)
    assert made["rejected_lines"][0]["line"] == 2
    assert made["rejected_lines"][0]["message"].startswith("is not JSON")
    assert await scalar(database, "SELECT string_agg(question, ' ' ORDER BY ordinal) FROM items") == "first last"
    again = await empty_api.upload("datasets", "mine", lines, on_error="skip")
    assert (again.status_code, again.json()) == (200, made)


async def test_skipping_everything_is_an_error(empty_api: Api, database: Database) -> None:
    reply = await empty_api.upload("datasets", "mine", [b"{\n", b"[]\n"], on_error="skip")
    assert (reply.status_code, reply.json()["line"], len(reply.json()["others"])) == (422, 1, 1)
    assert await scalar(database, NOTHING) == 0


@pytest.mark.parametrize("query", [{"on_error": "ignore"}, {"format": "xml"}, {"delimiter": "|"}])
async def test_an_option_that_is_none_is_refused_by_name(empty_api: Api, query: dict[str, str]) -> None:
    reply = await send(empty_api, "corpora", b'{"text": "x"}\n', **query)
    assert (reply.status_code, reply.json()["field"]) == (422, next(iter(query)))


async def test_damage_further_on_takes_back_what_came_before(
    empty_api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploads, "BATCH", 1)
    whole = as_parquet([{"id": str(number), "text": "x"} for number in range(4)], use_dictionary=False)
    second = parquet.read_metadata(io.BytesIO(whole)).row_group(1).column(0).data_page_offset
    reply = await send(empty_api, "corpora", whole[:second] + b"\xff" * 12 + whole[second + 12 :], on_error="skip")
    assert (reply.status_code, reply.json()["line"]) == (422, 3)
    assert "damaged or truncated Parquet file" in reply.json()["detail"]
    assert await scalar(database, NOTHING) == 0


async def test_a_client_that_goes_away_is_no_error_of_ours(empty_api: Api, database: Database) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    scope = {"type": "http", "method": "POST", "path": "/v1/datasets", "headers": []}
    with pytest.raises(BadRequest, match="closed before the whole upload"):
        async with uploads.spool(Request(scope, receive), Limits()):  # type: ignore[arg-type]
            pass


async def test_several_expected_answers_are_counted(empty_api: Api, database: Database) -> None:
    lines = [{"question": "?", "golden_answers": ["4", "four"]}, {"question": "!", "golden_answers": ["5"]}]
    made = (await empty_api.upload("datasets", "mine", lines)).json()
    assert (made["items"], made["alternatives"]) == (2, 1)
    assert await scalar(database, "SELECT string_agg(gold, ' ' ORDER BY ordinal) FROM items") == "4 5"


async def test_documents_that_another_corpus_has_are_not_stored_again(empty_api: Api, database: Database) -> None:
    await empty_api.upload("corpora", "one", DOCUMENTS)
    twice = [*DOCUMENTS, {"id": "c", "text": "z"}, {"id": "d", "text": "z"}]
    assert (await empty_api.upload("corpora", "two", twice)).status_code == 201
    assert await scalar(database, "SELECT count(*) FROM documents") == 3
    assert await scalar(database, "SELECT count(*) FROM corpus_documents") == 6


def test_formats_have_the_names_of_the_contract() -> None:
    assert [each.value for each in Format] == ["auto", "jsonl", "csv", "parquet"]
