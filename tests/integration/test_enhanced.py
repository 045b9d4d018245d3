"""Jobs with `enhanced` on a real database: in two stages, audited, and with a judge model that writes nonsense."""

import msgspec
import pytest

from shared.audit import check
from shared.calls import Request
from shared.replies import Failure, FailureKind, Generated, Reply
from shared.samples import Outcome
from shared.storage.database import Database
from tests.integration.scene import ScriptedExecutor, by_rule, furnish, rows, submit_job
from tests.integration.test_audit import staged

pytestmark = pytest.mark.anyio


async def outcomes(database: Database) -> list[Outcome]:
    return [msgspec.json.decode(row[0], type=Outcome) for row in await rows(database, "SELECT outcome FROM outcomes")]


async def asked(database: Database) -> dict[object, object]:
    return dict(await rows(database, "SELECT role, count(*) FROM calls GROUP BY 1"))  # type: ignore[arg-type]


async def test_a_job_runs_with_one_load_of_each_model_and_a_clean_audit(database: Database) -> None:
    await furnish(database, items=5)
    job = await submit_job(database, "enhanced", params={"enhance": {"hyde": True}, "hyde": {"documents": 2}})
    await staged(database)
    assert await rows(database, "SELECT state, total FROM jobs") == [("completed", 5)]
    assert (await asked(database))["generate"] == 5
    assert (await asked(database))["write"] == 5 * (2 + 2)
    assert await rows(database, "SELECT count(*) FROM residencies") == [(2,)]
    assert await check(database, job) == []
    for outcome in await outcomes(database):
        stages = [decision.stage for decision in outcome.trace.decisions]
        assert [stage for stage in stages if stage in ("rewrite", "decompose", "hyde", "rerank")] == [
            "rewrite",
            "decompose",
            "hyde",
            "rerank",
        ]
        assert any("hypothetical dense" in (entry.paths or {}) for entry in outcome.trace.candidates)


async def test_a_judge_that_writes_nonsense_leaves_the_original_question(database: Database) -> None:
    def nonsense(request: Request) -> Reply:
        if request.role == "rerank":
            return Failure(kind=FailureKind.NOT_CONFIGURED)
        return Generated(text="[[5]] as an AI") if request.role == "write" else by_rule(request)

    await furnish(database, items=5)
    job = await submit_job(database, "enhanced")
    await staged(database, ScriptedExecutor(nonsense))
    assert await rows(database, "SELECT state FROM jobs") == [("completed",)]
    assert await check(database, job) == []
    for outcome in await outcomes(database):
        fallbacks = [(decision.stage, decision.fallback) for decision in outcome.trace.decisions if decision.fallback]
        assert fallbacks == [("rewrite", "unparsed"), ("decompose", "unparsed"), ("rerank", "not_configured")]
        assert {path for entry in outcome.trace.candidates for path in entry.paths or {}} <= {
            "original dense",
            "original sparse",
        }


async def test_the_whole_flow_of_seed_document_001_takes_two_loads(database: Database) -> None:
    await furnish(database, items=5)
    crag = {"rounds": 2, "diversity": 1.0}
    job = await submit_job(database, "enhanced-crag", params={"crag": crag, "context_size": 3})
    await staged(database)
    assert await rows(database, "SELECT state, total FROM jobs") == [("completed", 5)]
    assert (await asked(database))["generate"] == 5
    assert await rows(database, "SELECT count(*) FROM residencies") == [(2,)]
    assert await check(database, job) == []
    for outcome in await outcomes(database):
        stages = dict.fromkeys(decision.stage for decision in outcome.trace.decisions)
        wanted = ("rewrite", "crag", "rerank", "compress")
        assert tuple(stage for stage in stages if stage in wanted) == wanted


async def test_prompts_that_do_not_fit_cost_no_load(database: Database) -> None:
    def cramped(request: Request) -> Reply:
        context = request.values.get("context")
        if request.role == "generate" and isinstance(context, list) and len(context) > 1:
            return Failure(kind=FailureKind.CONTEXT_EXCEEDED, detail="900 tokens of 512")
        return by_rule(request)

    await furnish(database, items=5)
    job = await submit_job(database, "hyde", params={"context_size": 3, "hyde": {"documents": 1}})
    await staged(database, ScriptedExecutor(cramped))
    assert await rows(database, "SELECT state FROM jobs") == [("completed",)]
    assert (await asked(database))["generate"] == 5 * 3
    assert await rows(database, "SELECT count(*) FROM residencies") == [(2,)]
    assert await check(database, job) == []
    for outcome in await outcomes(database):
        assert len(outcome.context) == 1
        dropped = [each for each in outcome.trace.decisions if each.stage == "context"]
        assert [each.fallback for each in dropped] == ["context_exceeded"] * 2
