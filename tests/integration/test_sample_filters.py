"""Lists of samples hold what their filters ask for, each sample once, however far a page may look."""

from collections.abc import AsyncIterator

import pytest

from shared.calls import Request
from shared.replies import Failure, FailureKind, Generated, Graded, Reply, Verified
from shared.storage import samples
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, serving

pytestmark = pytest.mark.anyio

PATH = "/v1/jobs/a-job/samples"


@pytest.fixture
async def served(database: Database, redis_url: str) -> AsyncIterator[Api]:
    await scene.furnish(database, items=12)
    await scene.run_sql(
        database,
        "UPDATE items SET subject = (ARRAY['Algebra', 'Geometry'])[1 + ordinal % 2], level = (ordinal % 3)::text",
    )
    async with serving(database, redis_url) as client:
        yield client


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


@pytest.mark.parametrize(("query", "expected"), FILTERS)
async def test_a_filter_holds_these_samples(
    served: Api, database: Database, query: dict[str, str], expected: list[int]
) -> None:
    await served.job()
    await scene.drain(database, scene.ScriptedExecutor(answer))
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


@pytest.mark.parametrize(
    ("query", "field"),
    [("state=asleep", "state"), ("ending=happy", "ending"), ("scored_by=dice", "scored_by"), ("moved=perhaps", "moved"),
     ("limit=0", "limit"), ("limit=501", "limit"), ("text=", "text"), (f"text={'x' * 201}", "text"),
     ("colour=red", "colour"), ("correct=2", "correct")],
)  # fmt: skip
async def test_a_filter_that_cannot_be_used_is_named(served: Api, query: str, field: str) -> None:
    await served.job()
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
