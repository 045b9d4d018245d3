import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from shared.audit import check
from shared.calls import Generate, Request
from shared.params import Params
from shared.replies import Failure, FailureKind, Generated, Graded, Reply, Retrieved, Verified
from shared.runtime import lifecycle
from shared.runtime.lifecycle import EndStep, cancel, finalise, finish_due_jobs, list_due_jobs
from shared.samples import Extraction, Library, Outcome, Sample, Steps, Trace
from shared.storage import jobs, samples
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api
from tests.integration.scene import (
    HeldDatabase,
    ScriptedExecutor,
    advance,
    claim_some,
    die_before_commit,
    drain,
    furnish,
    job_states,
    processes,
    rows,
    run_sql,
    scalar,
    submit_job,
)
from tests.integration.scene import answer as scene_answer
from tests.integration.test_audit import staged

# How samples ended, from real rows: in results, in pages, in one sample's provenance, and in the report.


pytestmark = pytest.mark.anyio
OTHER = r"so \boxed{99}"


async def finished(database: Database, texts: dict[int, str | Failure]) -> None:
    def answer(request: Request) -> Reply:
        if request.role == "generate":
            text = next((text for n, text in texts.items() if f"is {n} plus" in str(request.values["question"])), OTHER)
            return text if isinstance(text, Failure) else Generated(text=text, truncated=text.endswith("cut"))
        if request.role == "grade":
            right = request.values["answer"] == request.values["gold"]
            return Graded(math_verify=right, strict=right)
        return scene.by_rule(request)

    await scene.drain(database, scene.ScriptedExecutor(answer))


async def results(api: Api, job: Any) -> list[Any]:
    return [json.loads(line) for line in (await api.http.get(f"/v1/jobs/{job['id']}/results")).text.splitlines()]


async def relevant(database: Database, names: dict[str, int]) -> None:
    for ordinal, document in enumerate(scene.DOCUMENTS):
        values = {"ordinal": ordinal, "name": f"d{ordinal}", "hash": bytes.fromhex(document.hash)}
        await scene.run_sql(
            database,
            "INSERT INTO corpus_documents (corpus_id, ordinal, external_id, hash)"
            " SELECT id, :ordinal, :name, :hash FROM corpora WHERE name = 'docs'",
            **values,
        )
    await scene.run_sql(database, "UPDATE items SET gold_documents = CAST(:gold AS jsonb)", gold=json.dumps(names))


async def test_every_sample_says_how_it_ended_wherever_it_is_shown(api: Api, database: Database) -> None:
    job = await api.job("closed-book")
    refused = Failure(kind=FailureKind.REFUSED, detail="an empty text")
    texts: dict[int, str | Failure] = {0: r"\boxed{0}", 1: "I do not know.", 2: r"\boxed{9} and cut", 3: refused}
    await finished(database, texts)
    rows = await results(api, job)
    assert [row["ending"] for row in rows] == ["correct", "extraction", "truncated", "refused", "logic"]
    page = await api.get(f"/v1/jobs/{job['id']}/samples")
    assert [(row["ending"], row["ending_reason"]) for row in page["data"]] == [
        (row["ending"], row["ending_reason"]) for row in rows
    ]
    shown = await api.get(f"/v1/jobs/{job['id']}/samples/2")
    assert (shown["ending"], shown["ending_reason"]) == (rows[2]["ending"], rows[2]["ending_reason"])
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    assert report["endings"] == {"correct": 1, "refused": 1, "truncated": 1, "extraction": 1, "logic": 1}
    assert report["endings"]["correct"] == report["accuracy"]["correct"]
    async with database.transaction() as connection:
        number = await jobs.resolve(connection, job["id"])
    streamed = [each async for batch in samples.stream_endings(database, number) for each in batch]
    assert [each.ending for each in streamed] == [row["ending"] for row in rows]
    assert len({each.item for each in streamed}) == len(rows)


async def test_a_page_may_hold_only_what_the_graders_judge_differently(api: Api, database: Database) -> None:
    job = await api.job("dense")
    await scene.drain(database, scene.ScriptedExecutor())
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    differing = await api.get(f"/v1/jobs/{job['id']}/samples", differing="true", limit=1)
    pages = [differing]
    while cursor := pages[-1]["next_cursor"]:
        pages.append(await api.get(f"/v1/jobs/{job['id']}/samples", differing="true", limit=1, cursor=cursor))
    found = [row["index"] for page in pages for row in page["data"]]
    assert found == [row["index"] for row in await results(api, job) if row["correct"]]
    assert [each["index"] for each in report["differing"]] == found
    assert report["disagreements"] == len(found)
    if cursor := differing["next_cursor"]:
        assert (await api.http.get(f"/v1/jobs/{job['id']}/samples", params={"cursor": cursor})).status_code == 400


async def test_a_sample_that_has_not_ended_or_was_cancelled_has_no_ending(api: Api, database: Database) -> None:
    job = await api.job("closed-book")
    page = await api.get(f"/v1/jobs/{job['id']}/samples")
    assert {row["ending"] for row in page["data"]} == {None}
    await api.http.post(f"/v1/jobs/{job['id']}/cancel")
    assert {(row["state"], row["ending"]) for row in await results(api, job)} == {("cancelled", None)}


async def test_a_retrieval_miss_is_told_from_the_datasets_relevant_documents_and_never_without_them(
    api: Api, database: Database
) -> None:
    job = await api.job("dense", params={"candidates": 2})
    await finished(database, {0: r"\boxed{0}"})
    assert [row["ending"] for row in await results(api, job)] == ["correct", *["logic"] * 4]
    await relevant(database, {"lost": 1})
    rows = await results(api, job)
    assert [row["ending"] for row in rows] == ["correct", *["retrieval_miss"] * 4]
    assert rows[1]["ending_reason"] == "none of the relevant documents (1) was found"
    every = {f"d{n}": 1 for n in range(len(scene.DOCUMENTS))}
    await scene.run_sql(database, "UPDATE items SET gold_documents = CAST(:gold AS jsonb)", gold=json.dumps(every))
    rows = await results(api, job)
    assert [row["ending"] for row in rows] == ["correct", *["logic"] * 4]
    assert rows[1]["ending_reason"].endswith("a relevant document was in the prompt")


async def test_a_method_that_searches_nothing_misses_nothing(api: Api, database: Database) -> None:
    await relevant(database, {"d3": 1})
    job = await api.job("closed-book")
    await finished(database, {})
    assert {row["ending"] for row in await results(api, job)} == {"logic"}


async def test_a_search_without_a_hit_is_a_miss(api: Api, database: Database) -> None:
    await relevant(database, {"d3": 1})
    job = await api.job("sparse")

    def nothing(request: Request) -> Reply:
        return Retrieved(hits=()) if request.role == "retrieve" else scene.by_rule(request)

    await scene.drain(database, scene.ScriptedExecutor(nothing))
    assert {row["ending"] for row in await results(api, job) if not row["correct"]} == {"retrieval_miss"}


async def test_a_judge_without_a_rating_is_to_blame_for_what_the_prompt_became(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unscored(_sample: Sample, _params: Params, _library: Library) -> Steps:
        yield Generate(template="cot", question=_sample.question)
        return Outcome(answer="99", extraction=Extraction.OK, trace=Trace(unscored=True))

    scene.install(monkeypatch, "unscored", unscored)
    job = await api.job("unscored")
    await finished(database, {})
    assert {row["ending"] for row in await results(api, job)} == {"judge_failure"}


async def test_an_equation_that_does_not_hold_is_arithmetic(api: Api, database: Database) -> None:
    texts: dict[int, str | Failure] = {
        0: r"1+1=3. So \boxed{0}", 1: r"8+7=15. So \boxed{9}", 2: r"8+7=6. So \boxed{9}",
    }  # fmt: skip
    job = await api.job("closed-book")
    await finished(database, texts)
    rows = await results(api, job)
    assert [row["ending"] for row in rows] == ["correct", "logic", "arithmetic", "logic", "logic"]
    assert rows[2]["ending_reason"] == "does not hold: 8+7=6"
    await api.job("closed-book", name="longer", params={"generate": {"max_tokens": 99}})
    await finished(database, {0: r"\boxed{0}", 1: r"8+7=6. So \boxed{9}"})
    (pair,) = (await api.get("/v1/comparison", job=["a-job", "longer"], baseline="longer"))["pairs"]
    assert (pair["left"], pair["moved"]) == (
        "a-job",
        {"correct": {"correct": 1}, "arithmetic": {"logic": 1}, "logic": {"arithmetic": 1, "logic": 2}},
    )


async def test_of_several_texts_the_one_with_the_answer_is_looked_into(
    api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def several(sample: Sample, _params: Params, _library: Library) -> Steps:
        yield [Generate(template="cot", question=f"{sample.question} {n}") for n in range(3)]
        return Outcome(answer="8", extraction=Extraction.OK)

    def answer(request: Request) -> Reply:
        if request.role != "generate":
            return scene.by_rule(request)
        number = int(str(request.values["question"])[-1])
        return Generated(text=(r"1+1=3. \boxed{7}", r"2+2=5. \boxed{8}", r"3+3=6. \boxed{9}")[number])

    scene.install(monkeypatch, "several", several)
    job = await api.job("several")
    await scene.drain(database, scene.ScriptedExecutor(answer))
    wrong = [row for row in await results(api, job) if not row["correct"]]
    assert wrong
    assert {row["ending_reason"] for row in wrong} == {"does not hold: 2+2=5"}


async def test_wrong_answers_are_looked_into_in_one_go(api: Api, database: Database) -> None:
    await scene.add_dataset(database, 40, "many")
    counts = []
    for dataset in ("items", "many"):
        job = await api.job("dense", dataset=dataset, name=dataset)
        await finished(database, {})
        with statements(database) as seen:
            rows = await results(api, job)
        assert {row["ending"] for row in rows} == {"logic"}
        counts.append(len(seen))
    assert counts[0] == counts[1]


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    seen: list[str] = []

    def saw(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(database.engine.sync_engine, "before_cursor_execute", saw)
    yield seen
    event.remove(database.engine.sync_engine, "before_cursor_execute", saw)


# Finalising: once, in order, wherever it was interrupted, and only when nothing is left to do.

CHAIN = "SELECT r.seq, s.ordinal, s.repeat FROM records r JOIN samples s ON s.id = r.sample_id ORDER BY r.seq"


async def drained(database: Database, items: int = 5, repeats: int = 1) -> int:
    await furnish(database, items=items)
    await run_sql(database, "UPDATE items SET gold = NULL")
    await submit_job(database, "closed-book", repeats=repeats)
    await advance(database)
    taken = await claim_some(database)
    await scene_answer(database, taken)
    await advance(database)
    assert await job_states(database) == ["running"]
    return await scalar(database, "SELECT id FROM jobs")  # type: ignore[return-value]


async def finish_whole(database: Database) -> list[int]:
    ended = []
    while await list_due_jobs(database):
        ended += await finish_due_jobs(database)
    return ended


async def test_records_are_chained_in_sample_order(database: Database) -> None:
    await drained(database, items=3, repeats=2)
    await finish_due_jobs(database)
    assert await rows(database, CHAIN) == [(2 * item + r, item, r) for item in range(3) for r in range(2)]
    assert await rows(database, "SELECT state, chain = (SELECT hash FROM records WHERE seq = 5) FROM jobs") == [
        ("completed", True)
    ]


async def test_a_job_is_seen_finalizing_before_it_is_completed(database: Database) -> None:
    await drained(database)
    async with processes(database, 1) as [other]:
        held = HeldDatabase(other, first=2)  # what is due, and the step to finalizing
        finishing = asyncio.create_task(finish_due_jobs(held))
        await held.reached.wait()
        assert await job_states(database) == ["finalizing"]
        assert await scalar(database, "SELECT count(*) FROM records") == 0
        held.go.set()
        assert await finishing == [1]
    assert await job_states(database) == ["completed"]


async def test_one_process_at_a_time_chains_a_job(database: Database) -> None:
    job = await drained(database)
    async with processes(database, 1) as [other]:
        held = HeldDatabase(other, first=2)
        finishing = asyncio.create_task(finish_due_jobs(held))
        await held.reached.wait()
        assert await finish_due_jobs(database) == []
        assert await finalise(database, job) is EndStep.WAITS
        held.go.set()
        assert await finishing == [job]
    assert await scalar(database, "SELECT count(*) FROM records") == 5


async def test_another_process_goes_on_where_one_was_killed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await drained(database, items=7)
    monkeypatch.setattr(lifecycle, "FINALISED_AT_ONCE", 2)
    await die_before_commit(database, finish_due_jobs, first=4)
    assert await job_states(database) == ["finalizing"]
    assert await scalar(database, "SELECT count(*) FROM records") == 4
    assert await finish_whole(database) == [job]
    assert await job_states(database) == ["completed"]
    assert [seq for seq, _, _ in await rows(database, CHAIN)] == list(range(7))
    public = await scalar(database, "SELECT public_id FROM jobs")
    assert {each.invariant for each in await check(database, public)} <= {"I5"}  # type: ignore[arg-type]  # no epochs here
    assert await finalise(database, job) is EndStep.WAITS


@pytest.mark.parametrize("batch", [1, 2, 4, 5, 6])
async def test_the_chain_does_not_depend_on_the_batches(
    database: Database, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    monkeypatch.setattr(lifecycle, "FINALISED_AT_ONCE", batch)
    job = await drained(database, items=4)
    assert await finish_whole(database) == [job]
    assert await job_states(database) == ["completed"]
    hashes = [row[0] for row in await rows(database, "SELECT hash FROM records ORDER BY seq")]
    befores = [row[0] for row in await rows(database, "SELECT previous FROM records ORDER BY seq")]
    assert befores[1:] == hashes[:-1]
    assert await scalar(database, "SELECT chain FROM jobs") == hashes[-1]


async def test_a_job_with_a_live_sample_is_not_finalised(database: Database) -> None:
    await drained(database)
    await run_sql(database, "UPDATE samples SET state = 1, ended_at = NULL WHERE id = (SELECT min(id) FROM samples)")
    assert await finish_due_jobs(database) == []
    assert await job_states(database) == ["running"]


async def test_a_cancelled_job_chains_what_had_ended(database: Database) -> None:
    await furnish(database, items=3)
    job = await submit_job(database, "closed-book")
    await advance(database)
    taken = await claim_some(database)
    await scene_answer(database, taken, calls=taken.calls[:2])
    await cancel(database, job)
    await scene_answer(database, taken, calls=taken.calls[2:])
    await finish_due_jobs(database)
    assert await job_states(database) == ["cancelled"]
    assert await scalar(database, "SELECT count(*) FROM records") == 3
    assert {each.invariant for each in await check(database, job)} <= {"I5"}


async def test_a_reply_that_comes_after_the_cancel_breaks_no_chain(database: Database) -> None:
    await furnish(database, items=3)
    job = await submit_job(database, "closed-book")
    await submit_job(database, "closed-book", name="other")
    await advance(database)
    await cancel(database, job)
    await finish_due_jobs(database)
    assert await job_states(database) == ["cancelled", "running"]
    await staged(database)
    assert await job_states(database) == ["cancelled", "completed"]
    assert await check(database, job) == []


async def test_a_job_that_failed_in_preparation_has_an_empty_chain(database: Database) -> None:
    await furnish(database)
    job = await submit_job(database)
    unrated = Failure(kind=FailureKind.UNPARSED, detail="no rating")
    executor = ScriptedExecutor()
    by_rule = executor.answer
    executor.answer = lambda request: unrated if request.role == "judge" else by_rule(request)
    await staged(database, executor)
    assert await rows(database, "SELECT state, octet_length(chain) FROM jobs") == [("failed", 32)]
    assert await scalar(database, "SELECT count(*) FROM records") == 0
    assert await check(database, job) == []


async def test_a_look_at_the_ends_costs_one_statement_while_none_is_due(database: Database) -> None:
    await furnish(database)
    await submit_job(database, "closed-book")
    await advance(database)

    class Counting(Database):
        asked = 0

        def __init__(self) -> None:
            self.engine = database.engine

        def statement(self):  # type: ignore[no-untyped-def]
            self.asked += 1
            return super().statement()

        def transaction(self):  # type: ignore[no-untyped-def]
            raise AssertionError("no transaction is needed")

    counting = Counting()
    assert await finish_due_jobs(counting) == []
    assert counting.asked == 1
    await drain(database, ScriptedExecutor())
    assert await job_states(database) == ["completed"]


# Lists of samples hold what their filters ask for, each sample once, however far a page may look.

PATH = "/v1/jobs/a-job/samples"


@pytest.fixture
async def served(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database, items=12)
    await scene.run_sql(
        database,
        "UPDATE items SET subject = (ARRAY['Algebra', 'Geometry'])[1 + ordinal % 2], level = (ordinal % 3)::text",
    )
    return empty_api


def answer(request: Request) -> Reply:
    question = str(request.values.get("question"))
    match request.role:
        case "generate" if " 3 plus" in question:
            return Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="too long")
        case "generate" if " 4 plus" in question:
            return Generated(text="\\boxed{8}")
        case "generate":
            return Generated(text=f"{'$1+1=3$' if ' 5 plus' in question else ''} \\boxed{{50\\%_}}")
        case "grade":
            right = request.values["answer"] == request.values["gold"]
            return Graded(math_verify=right, strict=right)
        case _:
            return scene.by_rule(request)


async def indexes(served: Api, **query: str) -> list[int]:
    found: list[int] = []
    cursor: dict[str, str] = {}
    for _ in range(100):
        page = await served.get(PATH, **query, **cursor)
        found += [row["index"] for row in page["data"]]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}
    raise AssertionError("the cursor never ends")


FILTERS: list[tuple[dict[str, str], list[int]]] = [
    ({"state": "failed"}, [3]),
    ({"state": "ready"}, []),
    ({"correct": "true"}, [4]),
    ({"correct": "false", "subject": "Algebra"}, [0, 2, 6, 8, 10]),
    ({"wrong": "true"}, [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]),
    ({"differing": "true"}, []),
    ({"subject": "Geometry", "level": "0"}, [3, 9]),
    ({"subject": "geometry"}, []),
    ({"text": "WHAT IS 1"}, [1, 10, 11]),
    ({"text": "50\\%_"}, [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]),
    ({"text": "%"}, [0, 1, 2, 5, 6, 7, 8, 9, 10, 11]),
    ({"text": "5_"}, []),
    ({"ending": "correct"}, [4]),
    ({"ending": "failed"}, [3]),
    ({"ending": "arithmetic"}, [5]),
    ({"ending": "logic", "level": "2"}, [2, 8, 11]),
    ({"ending": "refused"}, []),
    ({"ending": "ungraded"}, []),
    ({"ending": "truncated"}, []),
    ({"ending": "extraction"}, []),
]


async def test_a_filter_holds_these_samples(served: Api, database: Database, subtests: pytest.Subtests) -> None:
    await served.job()
    await scene.drain(database, scene.ScriptedExecutor(answer))
    for query, expected in FILTERS:
        with subtests.test(query=query):
            assert await indexes(served, **query) == expected
            assert await indexes(served, **query, limit="1") == expected


async def test_a_page_looks_through_a_bounded_part_and_its_cursor_goes_on(
    served: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "WINDOW", 5)
    monkeypatch.setattr(samples, "BATCH", 2)
    monkeypatch.setattr(samples, "MOST_READ", 4)
    await served.job(repeats=2)
    await scene.drain(database, scene.ScriptedExecutor(answer))
    for query, expected in FILTERS:
        assert await indexes(served, **query) == [index for index in expected for _ in range(2)], query
    first = await served.get(PATH, ending="arithmetic")
    assert first["data"] == []
    assert first["next_cursor"]


async def test_samples_are_told_apart_by_who_scored_their_documents(served: Api, database: Database) -> None:
    await served.job("mathrag-gate", params={"quality": "judge", "route": {"enabled": True}})
    await scene.drain(database, scene.ScriptedExecutor())
    by = {row: (await served.get(f"{PATH}/{row}"))["scored_by"] for row in range(12)}
    assert set(by.values()) == {"rules", "judge"}
    for scorer in ("rules", "judge", "verifier"):
        assert await indexes(served, scored_by=scorer) == [index for index, who in by.items() if who == scorer]


async def test_a_way_of_scoring_that_a_job_cannot_have_taken_is_not_searched_for(
    served: Api, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "MOST_READ", 1)
    await served.job("mathrag-gate", params={"quality": "verifier"})

    def verified(request: Request) -> Reply:
        return Verified(verified=1, refuted=1, unknown=0) if request.role == "verify" else scene.by_rule(request)

    await scene.drain(database, scene.ScriptedExecutor(verified))
    assert await served.get(PATH, scored_by="judge") == {"data": [], "next_cursor": None}
    assert await indexes(served, scored_by="verifier") == list(range(12))


async def test_samples_are_told_apart_by_whether_reranking_changed_the_prompt(served: Api, database: Database) -> None:
    await served.job("mathrag-gate", params={"quality": "judge", "context_size": 2})
    await scene.drain(database, scene.ScriptedExecutor())
    changed, same = await indexes(served, moved="true"), await indexes(served, moved="false")
    assert changed
    assert sorted([*changed, *same]) == list(range(12))
    (row, *_) = [(await served.get(f"{PATH}/{index}"))["outcome"] for index in changed]
    fused = sorted(row["trace"]["candidates"], key=lambda each: (-each["fused"], each["document"]))
    assert [each["document"] for each in fused[:2]] != row["context"]


async def test_a_filter_that_cannot_be_used_is_named(served: Api, subtests: pytest.Subtests) -> None:
    await served.job()
    for query, field in (
        ("state=asleep", "state"),
        ("ending=happy", "ending"),
        ("scored_by=dice", "scored_by"),
        ("moved=perhaps", "moved"),
        ("limit=0", "limit"),
        ("limit=501", "limit"),
        ("text=", "text"),
        (f"text={'x' * 201}", "text"),
        ("colour=red", "colour"),
        ("correct=2", "correct"),
    ):
        with subtests.test(query=query):
            reply = await served.http.get(f"{PATH}?{query}")
            assert (reply.status_code, reply.json()["field"]) == (422, field)


async def test_a_cursor_belongs_to_its_filters(served: Api, database: Database) -> None:
    await served.job()
    await scene.drain(database, scene.ScriptedExecutor(answer))
    cursor = (await served.get(PATH, wrong="true", limit="2"))["next_cursor"]
    assert (await served.http.get(PATH, params={"cursor": cursor, "wrong": "true"})).status_code == 200
    for query in ({}, {"correct": "false"}, {"wrong": "true", "level": "1"}):
        assert (await served.http.get(PATH, params={"cursor": cursor, **query})).status_code == 400
    assert (await served.http.get(PATH, params={"cursor": "\u202e"})).status_code == 400
