from collections.abc import Callable
from typing import Any

import pytest

from shared.calls import Generate, Retrieve
from shared.params import Params
from shared.replies import Failure, FailureKind, Generated, require
from shared.runtime import advance as advance_runtime
from shared.runtime.advance import Advancer
from shared.samples import Extraction, Library, Outcome, Sample, Steps
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant
from tests.integration.scene import (
    ScriptedExecutor,
    advance,
    answer,
    claim,
    claim_some,
    die_before_commit,
    drain,
    ended,
    furnish,
    install,
    job_states,
    processes,
    rows,
    run_sql,
    sample_states,
    scalar,
    stuck,
    submit_job,
    two_questions,
    without_gold,
)
from tests.integration.test_comparison import Answered, answered, right

# Advance: one sample's defect is one sample's end, and a replay that does not fit its record says so.


pytestmark = pytest.mark.anyio


def ask(*questions: str) -> Callable[[Sample, Params, Library], Steps]:
    def run(sample: Sample, _params: Params, _library: Library) -> Steps:
        texts = []
        for question in questions:
            generated = yield Generate(template="cot", question=f"{sample.question} {question}")
            texts.append(require(generated).text)
        return ended(" ".join(texts))

    return run


async def submitted(database: Database, pipeline: str, items: int = 1) -> None:
    await furnish(database, items)
    await without_gold(database)
    await submit_job(database, pipeline)


async def test_a_sample_is_replayed_from_its_replies_and_goes_on_where_it_was(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "asking", ask("a", "b", "c"))
    await submitted(database, "asking")
    for position in (1, 2, 3):
        async with processes(database, 1) as [other]:
            await advance(other)
            assert await rows(database, "SELECT state, position FROM samples") == [(1, position)]
            await answer(other, await claim_some(other), Generated(text=f"reply {position}"))
    await advance(database)
    assert await rows(database, "SELECT answer FROM outcomes") == [("reply 1 reply 2 reply 3",)]
    assert await rows(database, "SELECT position, slot FROM steps ORDER BY 1") == [(0, 0), (1, 0), (2, 0)]


async def test_replies_that_are_there_are_consumed_in_one_advance(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "asking", ask("a", "b", "c"))
    await submitted(database, "asking")
    await drain(database, ScriptedExecutor())
    await submit_job(database, "asking")
    assert (await Advancer(database).advance()).samples == 1
    assert await sample_states(database) == [2, 2]
    assert await scalar(database, "SELECT count(*) FROM steps WHERE NOT created") == 3
    assert len(await rows(database, "SELECT DISTINCT record_hash FROM outcomes")) == 1


async def test_the_record_hash_covers_what_was_asked_and_answered(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "asking", ask("a"))
    await submitted(database, "asking", items=2)
    await advance(database)
    await answer(database, await claim_some(database), Generated(text="the same"))
    await advance(database)
    assert len(await rows(database, "SELECT DISTINCT record_hash FROM outcomes")) == 2


@pytest.mark.parametrize("after", [1, 2])
async def test_a_pipeline_that_was_changed_in_flight_fails_its_sample_in_words(
    database: Database, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    install(monkeypatch, "asking", ask("a", "b", "c"))
    await submitted(database, "asking")
    for _ in range(after):
        await advance(database)
        await answer(database, await claim_some(database))
    changed = ["a", "b", "c"]
    changed[after - 1] = "something else"
    install(monkeypatch, "asking", ask(*changed))
    await advance(database)
    [(state, failure, detail)] = await rows(database, "SELECT state, failure, detail FROM samples")
    recorded = await scalar(database, "SELECT encode(key, 'hex') FROM calls ORDER BY created_at DESC LIMIT 1")
    assert (state, failure) == (3, "replay_diverged")
    assert f"position {after - 1}: recorded {str(recorded)[:12]}, yielded " in str(detail)
    assert await scalar(database, "SELECT count(*) FROM calls") == after
    assert await scalar(database, "SELECT count(*) FROM outcomes") == 0


async def test_a_pipeline_that_now_ends_where_it_had_asked_has_diverged(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "asking", ask("a", "b"))
    await submitted(database, "asking")
    for _ in range(2):
        await advance(database)
        await answer(database, await claim_some(database))
    install(monkeypatch, "asking", ask("a"))
    await advance(database)
    assert await rows(database, "SELECT state, failure FROM samples") == [(3, "replay_diverged")]
    assert "yielded nothing" in str(await scalar(database, "SELECT detail FROM samples"))


async def test_a_pipeline_that_asks_in_another_order_has_diverged(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asking(sample: Sample, params: Params, library: Library) -> Steps:
        return two_questions(sample, params, library)

    def reversed_(sample: Sample, _params: Params, _library: Library) -> Steps:
        yield [Generate(template="cot", question=f"{sample.question} {n}") for n in (2, 1)]
        return ended(None)

    install(monkeypatch, "asking", asking)
    await submitted(database, "asking")
    await advance(database)
    await answer(database, await claim_some(database))
    install(monkeypatch, "asking", reversed_)
    await advance(database)
    assert await rows(database, "SELECT state, failure FROM samples") == [(3, "replay_diverged")]


async def test_an_exception_in_a_pipeline_ends_its_sample_only(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def brittle(sample: Sample, _params: Params, _library: Library) -> Steps:
        generated = yield Generate(template="cot", question=sample.question)
        if sample.item.ordinal == 1:
            raise ZeroDivisionError("in item one")
        return ended(require(generated).text)

    install(monkeypatch, "brittle", brittle)
    await submitted(database, "brittle", items=3)
    await drain(database, ScriptedExecutor())
    assert await rows(database, "SELECT ordinal, state, failure FROM samples ORDER BY 1") == [
        (0, 2, None),
        (1, 3, "pipeline_error"),
        (2, 2, None),
    ]
    detail = await scalar(database, "SELECT detail FROM samples WHERE state = 3")
    assert "ZeroDivisionError: in item one" in str(detail)
    assert await job_states(database) == ["completed"]


async def test_a_pipeline_that_never_ends_with_some_reply_ends_that_sample_only(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advance_runtime, "STEP_S", 0.05)

    def endless(sample: Sample, _params: Params, _library: Library) -> Steps:
        generated = yield Generate(template="cot", question=sample.question)
        while sample.item.ordinal == 1:
            pass
        return ended(require(generated).text)

    install(monkeypatch, "endless", endless)
    await submitted(database, "endless", items=3)
    await drain(database, ScriptedExecutor())
    failed = "SELECT state, failure FROM samples ORDER BY ordinal"
    assert await rows(database, failed) == [(2, None), (3, "pipeline_error"), (2, None)]
    assert await job_states(database) == ["completed"]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (Generate(template="no-such-template", question="?"), "no-such-template"),
        (Retrieve(question="?", index="no-such-index", k=3), "no-such-index"),
        (Generate(template="cot", question="lone surrogate \ud800"), "surrogate"),
    ],
)
async def test_a_call_that_cannot_be_bound_ends_its_sample_only(
    database: Database, monkeypatch: pytest.MonkeyPatch, call: Generate | Retrieve, said: str
) -> None:
    def odd(sample: Sample, _params: Params, _library: Library) -> Steps:
        yield Generate(template="cot", question=sample.question)
        if sample.item.ordinal == 1:
            yield call
        return ended("fine")

    install(monkeypatch, "odd", odd)
    await submitted(database, "odd", items=2)
    await drain(database, ScriptedExecutor())
    [(ordinal, failure, detail)] = await rows(database, "SELECT ordinal, failure, detail FROM samples WHERE state = 3")
    assert (ordinal, failure) == (1, "pipeline_error")
    assert said in str(detail)
    assert await job_states(database) == ["completed"]


@pytest.mark.parametrize("yielded", [None, "a question", Generate(template="cot", question="?", context=5)])  # type: ignore[arg-type]
async def test_a_pipeline_that_yields_nonsense_ends_its_sample_only(
    database: Database, monkeypatch: pytest.MonkeyPatch, yielded: object
) -> None:
    def nonsense(sample: Sample, _params: Params, _library: Library) -> Steps:
        yield Generate(template="cot", question=sample.question)
        if sample.item.ordinal == 1:
            yield yielded  # type: ignore[misc]
        return ended("fine")

    install(monkeypatch, "nonsense", nonsense)
    await submitted(database, "nonsense", items=2)
    await drain(database, ScriptedExecutor())
    assert await rows(database, "SELECT ordinal, state, failure FROM samples ORDER BY 1") == [
        (0, 2, None),
        (1, 3, "pipeline_error"),
    ]


async def test_an_outcome_that_cannot_be_stored_ends_its_sample_only(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    def null_byte(sample: Sample, _params: Params, _library: Library) -> Steps:
        yield Generate(template="cot", question=sample.question)
        return ended("a\0b" if sample.item.ordinal == 1 else "fine")

    install(monkeypatch, "null-byte", null_byte)
    await submitted(database, "null-byte", items=2)
    await drain(database, ScriptedExecutor())
    assert await job_states(database) == ["completed"]


async def test_a_failed_reply_that_the_pipeline_requires_ends_the_sample_with_its_kind(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    from shared.replies import Failure, FailureKind

    def lenient(sample: Sample, _params: Params, _library: Library) -> Steps:
        reply = yield Generate(template="cot", question=sample.question)
        return Outcome(answer=reply.kind.value, extraction=Extraction.MISSING)

    install(monkeypatch, "lenient", lenient)
    await submitted(database, "lenient")
    await submit_job(database, "closed-book")
    await advance(database)
    await answer(database, await claim_some(database), Failure(kind=FailureKind.REFUSED, detail="no"))
    await advance(database)
    assert await rows(database, "SELECT state, failure FROM samples ORDER BY id") == [(2, None), (3, "refused")]
    assert await scalar(database, "SELECT answer FROM outcomes") == "refused"


async def test_a_sample_that_is_ready_for_no_reason_goes_back_to_waiting(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, "asking", two_questions)
    await submitted(database, "asking")
    await advance(database)
    await run_sql(database, "UPDATE samples SET state = 0")
    await advance(database)
    assert await rows(database, "SELECT state, position FROM samples") == [(1, 1)]
    assert await scalar(database, "SELECT count(*) FROM steps") == 2
    first = await claim_some(database, 1)
    await answer(database, first)
    await run_sql(database, "UPDATE samples SET state = 0")
    await advance(database)
    assert await sample_states(database) == [1]
    await answer(database, await claim_some(database))
    await advance(database)
    assert await sample_states(database) == [2]


async def test_a_reply_that_meets_a_sample_ready_for_no_reason_wakes_it(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await submitted(database, "closed-book")
    await advance(database)
    taken, real = await claim_some(database), advance_runtime.record

    async def record_after_the_reply(*arguments: object) -> object:
        await answer(database, taken)
        return await real(*arguments)  # type: ignore[arg-type]

    await run_sql(database, "UPDATE samples SET state = 0")
    monkeypatch.setattr(advance_runtime, "record", record_after_the_reply)
    async with processes(database, 1) as [other]:
        await Advancer(other).advance()
    assert await stuck(database) == []


async def test_an_advance_that_dies_leaves_nothing_behind(database: Database) -> None:
    await submitted(database, "closed-book", items=3)
    await die_before_commit(database, lambda held: Advancer(held).advance())
    assert await scalar(database, "SELECT count(*) FROM calls") == 0
    assert await sample_states(database) == [0, 0, 0]
    assert await advance(database) == 3
    assert await scalar(database, "SELECT count(*) FROM queue") == 3


async def test_a_batch_takes_no_more_samples_than_it_may(database: Database) -> None:
    await submitted(database, "closed-book", items=5)
    advanced = await Advancer(database).advance(limit=2)
    assert advanced.samples == 2
    assert await sample_states(database) == [1, 1, 0, 0, 0]


async def test_an_advance_says_which_lanes_got_work_and_whose_samples_ended(database: Database) -> None:
    await furnish(database, items=1)
    await submit_job(database, "closed-book")
    job = await scalar(database, "SELECT id FROM jobs")
    first = await Advancer(database).advance()
    assert (sorted(first.lanes), first.jobs) == (["generate"], frozenset())
    await answer(database, await claim_some(database))
    second = await Advancer(database).advance()
    assert (sorted(second.lanes), second.jobs) == (["judge"], frozenset())
    grading = await claim(database, role="grade")
    assert grading is not None
    await answer(database, grading)
    third = await Advancer(database).advance()
    assert (third.lanes, third.jobs) == (frozenset(), frozenset({job}))
    assert (await Advancer(database).advance()) == advance_runtime.NOTHING


async def test_items_without_a_gold_answer_are_not_graded(database: Database) -> None:
    await submitted(database, "closed-book")
    await drain(database, ScriptedExecutor())
    assert await scalar(database, "SELECT count(*) FROM calls WHERE role = 'grade'") == 0
    assert await rows(database, "SELECT correct, strict FROM outcomes") == [(None, None)]


async def test_verdicts_are_stored_with_the_outcome(database: Database) -> None:
    from shared.calls import Request
    from shared.replies import Graded
    from tests.integration.scene import by_rule

    def reply(request: Request) -> object:
        return Graded(math_verify=True, strict=False) if request.role == "grade" else by_rule(request)

    await furnish(database, items=1)
    await submit_job(database, "closed-book")
    await drain(database, ScriptedExecutor(reply))  # type: ignore[arg-type]
    assert await rows(database, "SELECT extraction, correct, strict FROM outcomes") == [("ok", True, False)]


async def test_a_sample_that_fails_is_told_in_the_log_with_its_ids(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await furnish(database, items=1)
    job = await submit_job(database, "closed-book")
    await advance(database)
    await answer(database, await claim_some(database), Failure(kind=FailureKind.REFUSED, detail="no"))
    with caplog.at_level("WARNING"):
        await advance(database)
    (line,) = [record for record in caplog.records if "a sample failed" in record.message]
    assert (line.job_id, line.trace_id, line.message) == (str(job), job.hex, "a sample failed: refused")  # type: ignore[attr-defined]
    assert line.sample_id == await scalar(database, "SELECT id FROM samples")  # type: ignore[attr-defined]


# Samples that changed between two jobs: which they are, page by page, and one of them as both answered it.

__all__ = ["answered"]
AT = "/v1/comparison/samples"


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database, 10)
    return empty_api


async def indexes(api: Api, **query: Any) -> list[int]:
    return [each["index"] for each in (await api.get(AT, **query))["data"]]


async def test_gains_are_the_left_jobs_and_losses_the_right_ones(api: Api, answered: Answered) -> None:
    await answered(one=[0, 1, 2, 5], two=[2, 3, 5])
    both = {"left": "one", "right": "two"}
    assert await indexes(api, **both) == [0, 1, 3]
    assert await indexes(api, **both, only="gained") == [0, 1]
    assert await indexes(api, **both, only="lost") == [3]
    assert await indexes(api, left="two", right="one", only="gained") == [3]
    found = await api.get(AT, **both)
    (pair,) = (await api.get("/v1/comparison", job=["one", "two"]))["pairs"]
    assert (found["gained"], found["lost"]) == (pair["gained"], pair["lost"]) == (2, 1)
    assert (found["left_name"], found["right_name"]) == ("one", "two")
    first = found["data"][0]
    assert (first["left"]["correct"], first["right"]["correct"], first["gold"]) == (True, False, "0")


async def test_pages_follow_each_other_and_count_all(api: Api, answered: Answered) -> None:
    await answered(one=range(7), two=[])
    first = await api.get(AT, left="one", right="two", limit=4)
    rest = await api.get(AT, left="one", right="two", limit=4, cursor=first["next_cursor"])
    assert [each["index"] for each in first["data"] + rest["data"]] == list(range(7))
    assert rest["next_cursor"] is None
    assert first["gained"] == rest["gained"] == 7
    for other in ({"left": "two", "right": "one"}, {"left": "one", "right": "two", "only": "gained"}):
        reply = await api.http.get(AT, params={**other, "cursor": first["next_cursor"]})
        assert reply.status_code == 400


async def test_repeats_are_matched_with_repeats(api: Api, database: Database, plant: Plant) -> None:
    await api.job(name="thrice", repeats=3, params={"generate": {"temperature": 0.8}})
    await api.job(name="twice", repeats=2, params={"generate": {"temperature": 0.8}})
    await finished(database)
    for repeat in range(3):
        await right(plant, "thrice", [4], repeat=repeat)
    await right(plant, "twice", [4])
    await right(plant, "twice", [], repeat=1)
    found = await api.get(AT, left="thrice", right="twice")
    assert [(each["index"], each["repeat"]) for each in found["data"]] == [(4, 1)]


async def test_questions_are_matched_by_content_in_another_dataset(
    api: Api, database: Database, plant: Plant, answered: Answered
) -> None:
    await answered(one=range(10))
    await scene.add_dataset(database, 10, "moved", changed=frozenset({9}))
    moved = await scene.scalar(database, "SELECT id FROM datasets WHERE name = 'moved'")
    await plant("UPDATE items SET ordinal = 100 + ordinal WHERE dataset_id = :moved", moved=moved)
    await plant("UPDATE items SET ordinal = (ordinal + 1) % 10 WHERE dataset_id = :moved", moved=moved)
    await plant(
        "UPDATE items i SET hash = o.hash, question = o.question FROM items o"
        " WHERE o.dataset_id = i.dataset_id AND i.dataset_id = :moved AND o.ordinal = 1 AND i.ordinal = 2",
        moved=moved,
    )
    await api.job(name="two", dataset="moved")
    await finished(database)
    await right(plant, "two", range(7))
    await plant(
        "UPDATE outcomes SET correct = NULL FROM samples s JOIN jobs j ON j.id = s.job_id"
        " WHERE s.id = sample_id AND j.name = 'two' AND s.ordinal = 9"
    )
    found = await api.get(AT, left="one", right="two")
    assert [(each["index"], each["right_index"]) for each in found["data"]] == [(6, 7), (7, 8)]


async def test_one_question_stands_with_both_provenances_and_what_their_prompts_differ_in(
    api: Api, database: Database
) -> None:
    await api.job("dense", name="dense")
    await api.job("closed-book", name="closed")
    await finished(database)
    found = await api.get(f"{AT}/3", left="dense", right="closed")
    assert (found["left_name"], found["left"]["index"], found["right"]["index"]) == ("dense", 3, 3)
    assert found["left"]["question"] == found["right"]["question"]
    only = [line["text"] for line in found["prompts"]["lines"] if line["side"] == "left"]
    assert any("Therefore" in line for line in only)
    assert not found["prompts"]["cut"]


@pytest.mark.parametrize(
    ("path", "query", "status", "said"),
    [
        ("", {"left": "one", "right": "one"}, 422, "the same job"),
        ("", {"left": "one"}, 422, "right"),
        ("", {"left": "one", "right": "none"}, 404, "no job 'none'"),
        ("", {"left": "one", "right": "two", "only": "both"}, 422, "only"),
        ("/10", {"left": "one", "right": "two"}, 404, "no common sample 10"),
        ("/1", {"left": "one", "right": "two", "repeat": 1}, 404, "repeat 1"),
        ("/1", {"left": "one", "right": "two", "repeat": -1}, 422, "repeat"),
    ],
)
async def test_what_is_not_there_is_refused(
    api: Api, database: Database, path: str, query: dict[str, Any], status: int, said: str
) -> None:
    for name in ("one", "two"):
        await api.job(name=name)
    await finished(database)
    reply = await api.http.get(AT + path, params=query)
    assert reply.status_code == status
    assert said in reply.text
