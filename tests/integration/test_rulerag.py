"""Jobs that follow rules: what is refused, what is filled in, how they run, and what their report and audit say."""

from typing import Any

import msgspec
import pytest

from shared.audit import check
from shared.calls import Request
from shared.errors import Conflict, Invalid
from shared.params import Params
from shared.replies import Generated, Reply
from shared.runtime.submit import repeat_submission, submit
from shared.samples import FactQuery, Outcome
from shared.settings import Settings
from shared.storage import rules as stored_rules
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api
from tests.integration.following import FollowingRules, add_bank, add_graph, ask_for
from tests.integration.scene import by_rule, drain, furnish, rows, scalar, submit_job

pytestmark = pytest.mark.anyio
VISIT = FactQuery(relation="Make_a_visit", entity="Ann")
GRAPH = b"g" * 32
JOB = {"name": "j", "dataset": "items", "corpus": "docs", "pipeline": "rulerag"}


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await furnish(database, needs_lease=False)
    await add_graph(database, digest=GRAPH)
    await add_bank(database, graph=GRAPH.hex())
    return empty_api


async def refused(api: Api, status: int = 422, **fields: Any) -> str:
    reply = await api.http.post("/v1/jobs", json={**JOB, **fields})
    assert reply.status_code == status, reply.text
    return reply.text


async def stored(database: Database) -> Params:
    raw = await scalar(database, "SELECT params FROM jobs ORDER BY id DESC LIMIT 1")
    return msgspec.json.decode(raw, type=Params)  # type: ignore[arg-type]


async def test_a_job_without_a_bank_is_refused_with_the_command(api: Api) -> None:
    for fields in ({}, {"corpus": None}):
        said = await refused(api, **fields)
        assert "needs a rule bank" in said
        assert "mathrag rules list" in said
    await api.job("rulerag", params={"rulerag": {"most": 0}})


async def test_a_bank_of_another_graph_is_refused_with_both_names(api: Api, database: Database) -> None:
    await add_bank(database, name="other", graph="ab" * 32)
    await add_bank(database, name="unknown")
    said = await refused(api, params={"rules": "other"})
    assert "'other' was mined from graph with the hash abababababab, and the corpus holds graph 'docs'" in said
    assert "mathrag rules mine --graph docs" in said
    await api.job("rulerag", params={"rules": "unknown"})
    assert "nowhere" in await refused(api, 404, params={"rules": "nowhere"})


async def test_a_corpus_that_is_no_graphs_is_accepted(database: Database) -> None:
    await furnish(database)
    await add_bank(database, graph="ab" * 32)
    await submit_job(database, "rulerag", params={"rules": "bank"})
    assert (await stored(database)).rulerag.phrases == ""


async def test_the_graphs_phrases_are_filled_in_and_cannot_be_named(api: Api, database: Database) -> None:
    job = await api.job("rulerag", params={"rules": "bank"})
    phrases = (await stored(database)).rulerag.phrases
    assert len(phrases) == 64
    assert "filled in at submission" in await refused(api, params={"rules": "bank", "rulerag": {"phrases": phrases}})
    await drain(database, FollowingRules(database))
    assert (await repeat_submission(database, job["id"])).params.rulerag.phrases == phrases
    reply = await api.http.post(f"/v1/jobs/{job['id']}/requeue")
    assert reply.status_code == 202, reply.text


async def test_without_a_judge_model_none_is_asked_and_no_query_can_be_written(database: Database) -> None:
    await furnish(database)
    await add_bank(database)
    settings = Settings(roles={"generate": "a-generator"}, database_url="unused")
    submission = scene.Submission(**JOB, params=Params(rules="bank"))
    await submit(database, settings, submission)
    assert (await stored(database)).rulerag.ask is False
    rewritten = msgspec.convert({"rules": "bank", "rulerag": {"query": "rewritten"}}, Params)
    with pytest.raises(Invalid, match="needs a judge model"):
        await submit(database, settings, msgspec.structs.replace(submission, name="k", params=rewritten))


async def test_items_whose_relations_have_no_rule_are_counted_in_a_warning(api: Api, database: Database) -> None:
    await ask_for(database, VISIT)
    assert "warnings" not in await api.job("rulerag", params={"rules": "bank"})
    await ask_for(database, FactQuery(relation="Fly"))
    job = await api.job("rulerag", params={"rules": "bank"}, limit=3)
    assert job["warnings"] == [
        "3 of 3 items ask for relations that no rule of bank 'bank' leads to: they are searched for plainly"
    ]


MODES: tuple[dict[str, Any], ...] = (
    {}, {"use": "retrieval"}, {"use": "generation"}, {"query": "rewritten"}, {"cot": True}, {"index": "dense"},
    {"index": "sparse"}, {"order": "random"}, {"order": "worst", "most": 1}, {"most": 0}, {"support": 1000},
)  # fmt: skip


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_a_job_in_every_mode_completes_and_its_audit_is_clean(database: Database, mode: dict[str, Any]) -> None:
    await furnish(database, needs_lease=False)
    await add_bank(database)
    await ask_for(database, VISIT)
    job = await submit_job(database, "rulerag", params={"rules": "bank", "rulerag": mode})
    await drain(database, FollowingRules(database))
    assert await scalar(database, "SELECT state FROM jobs") == "completed"
    assert await check(database, job) == []
    for (raw,) in await rows(database, "SELECT outcome FROM outcomes"):
        decisions = msgspec.json.decode(raw, type=Outcome).trace.decisions  # type: ignore[call-overload]
        # The scripted searches leave no near-duplicate out.
        actions = [(each.stage, each.action) for each in decisions if each.stage != "duplicates"]
        plain = mode.get("most") == 0 or "support" in mode
        action = "prompt" if mode.get("use") == "generation" else "search"
        rules = 0 if plain else 1 if mode.get("most") == 1 else 3
        assert actions == [("relation", "none" if mode.get("most") == 0 else "named"), *[("rule", action)] * rules]


def judge(request: Request) -> Reply:
    if request.role == "write":
        return Generated(text=str(request.values["relations"]).splitlines()[0])
    return by_rule(request)


async def test_questions_that_name_no_relation_ask_the_judge_model(api: Api, database: Database) -> None:
    job = await api.job("rulerag", params={"rules": "bank", "context_size": 2})
    await drain(database, FollowingRules(database, judge))
    report = await api.get(f"/v1/jobs/{job['id']}/report")
    guided = report["guided"]
    assert (guided["bank"], guided["relations"], guided["unguided"]) == ("bank", {"judge": 5}, 0)
    assert guided["with_rules"] == report["accuracy"]
    assert [(each["number"], each["samples"]) for each in guided["rules"]] == [(3, 5)]
    assert guided["rules"][0]["documents"] > 0
    sample = await api.get(f"/v1/jobs/{job['id']}/samples/0")
    assert all(each["paths"] == {"rule 3": each["rank"]} for each in sample["outcome"]["trace"]["candidates"])
    assert await check(database, job["id"]) == []


async def test_a_job_of_another_pipeline_reports_no_rules(api: Api, database: Database) -> None:
    job = await api.job("dense")
    await drain(database, FollowingRules(database))
    assert (await api.get(f"/v1/jobs/{job['id']}/report"))["guided"] is None


async def test_a_bank_that_goes_away_fails_samples_that_need_it_and_nothing_else(database: Database) -> None:
    await furnish(database, items=1)
    await add_bank(database)
    await ask_for(database, VISIT)
    await submit_job(database, "rulerag", params={"rules": "bank"})
    with pytest.raises(Conflict, match="used by live jobs"):
        await stored_rules.delete(database, "bank")
    await scene.run_sql(database, "DELETE FROM rule_banks")
    executor = FollowingRules(database)
    for _ in range(4):
        await drain(database, executor)
        await scene.let_pauses_pass(database)
    ((failure, detail),) = await rows(database, "SELECT failure, detail FROM samples")
    assert failure == "backend_error"
    assert "requeue the job" in str(detail)
