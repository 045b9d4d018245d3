"""How samples ended, from real rows: in results, in pages, in one sample's provenance, and in the report."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from shared.calls import Generate, Request
from shared.params import Params
from shared.replies import Failure, FailureKind, Generated, Graded, Reply, Retrieved
from shared.samples import Extraction, Library, Outcome, Sample, Steps, Trace
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving

pytestmark = pytest.mark.anyio
OTHER = r"so \boxed{99}"


@pytest.fixture
async def api(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database)
    async with serving(database, redis_url) as serving_api:
        yield serving_api


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
    assert rows[1]["ending_reason"].endswith("a relevant document stood in the prompt")


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
