"""The main job on the real stack: real servers, real models, every figure read back as a user would."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from shared.params import QUALITY_ALONE
from shared.settings import REPOSITORY, Model, Settings
from shared.storage.database import Database
from tests.running import JUDGED, RunningStack, ended, mathrag, running_stack


@pytest.fixture(scope="session")
def gate_job(stack: RunningStack) -> str:
    job = stack.submit("the-main-job", params=JUDGED)
    assert stack.wait(job, ended)["state"] == "completed"
    return job


@pytest.mark.smoke
def test_the_papers_pipeline_takes_two_model_loads(stack: RunningStack, gate_job: str) -> None:
    report = stack.get(f"/v1/jobs/{gate_job}/report")
    assert report["model_loads"] == 2
    servers = asyncio.run(_servers(stack, [residency["epoch"] for residency in report["residencies"]]))
    assert len(servers) == len({server["pid"] for server in servers}) == 2


@pytest.mark.smoke
def test_the_audit_is_clean(stack: RunningStack, gate_job: str) -> None:
    assert mathrag("audit", gate_job, MATHRAG_URL=stack.url).returncode == 0


@pytest.mark.smoke
def test_a_sample_shows_where_its_answer_comes_from(stack: RunningStack, gate_job: str) -> None:
    shown = mathrag("sample", "show", gate_job, "0", MATHRAG_URL=stack.url)
    assert shown.returncode == 0, shown.stderr
    sample = stack.get(f"/v1/jobs/{gate_job}/samples/0")
    roles = {step["role"] for step in sample["steps"]}
    assert {"retrieve", "judge", "generate"} <= roles
    assert all(step["attempt"]["epoch"] for step in sample["steps"] if step["role"] in ("judge", "generate"))
    assert all(step["digest"] for step in sample["steps"])
    assert not any("question" in step["request"]["values"] for step in sample["steps"] if step["role"] == "judge")


@pytest.mark.smoke
def test_the_same_job_again_makes_no_model_call(stack: RunningStack, gate_job: str) -> None:
    again = stack.submit("again", params=JUDGED)
    stack.wait(again, ended)
    first, second = (stack.get(f"/v1/jobs/{job}/report") for job in (gate_job, again))
    assert (second["model_calls"], second["model_loads"]) == (0, 0)
    assert second["accuracy"] == first["accuracy"]


def test_the_label_judge_rates_documents_higher_for_their_own_questions(stack: RunningStack, gate_job: str) -> None:
    options = ["--name", "measured", "--metric", "context_relevance", "--model", "judge=label-judge", "--wait"]
    measured = mathrag("job", "measure", gate_job, *options, MATHRAG_URL=stack.url)
    assert measured.returncode == 0, measured.stderr
    report = stack.get("/v1/jobs/measured/report")
    found = report["metrics"]["context_relevance"]
    assert (report["model_loads"], found["failed"]) == (1, 0)
    assert found["mean"]["value"] - found["controls"]["swapped"] > 0.2
    assert not any("made-up world" in note for note in report["notes"])


def test_a_sampled_generator_writes_five_answers_and_the_judge_rates_once(stack: RunningStack, gate_job: str) -> None:
    params = {"generate": {"temperature": 0.7}, **QUALITY_ALONE}  # what the first job had rated
    job = stack.submit("five-repeats", repeats=5, params=params)
    stack.wait(job, ended)
    made = stack.get(f"/v1/jobs/{job}/report")["calls_made"]
    assert made["generate"] == 5 * 60
    assert made.get("judge", 0) == 0


@pytest.mark.smoke
def test_the_shipped_budget_holds_either_shipped_model_and_not_both() -> None:
    settings = Settings()
    footprints = [model.footprint_mib for model in settings.models.values()]
    assert max(footprints) <= settings.device.budget_mib < sum(footprints)


def test_a_generator_in_the_judges_place_shows_as_parse_failures(tmp_path: Path) -> None:
    wrong = {"world-judge": _process("world-generator"), "world-generator": _process("world-generator")}
    config = tmp_path / "mathrag.yaml"
    config.write_text(Settings(models=wrong).model_dump_json(include={"models"}))
    with running_stack(tmp_path / "data", MATHRAG_CONFIG=str(config)) as stack:
        stack.furnish(tmp_path / "world", items=20)
        job = stack.wait(stack.submit("swapped"), ended)
        assert job["state"] == "failed"
        assert "gate.on_unusable=rules" in job["reason"]
        assert stack.get(f"/v1/jobs/{job['id']}/report")["parse_failures"] > 0


def test_a_stopped_stack_comes_back_with_everything(tmp_path: Path) -> None:
    with running_stack(tmp_path / "data") as stack:
        stack.furnish(tmp_path / "world", items=5)
        job = stack.submit("kept", pipeline="hybrid")
        stack.wait(job, ended)
        results = stack.api.get(f"/v1/jobs/{job}/results").text
    with running_stack(tmp_path / "data") as stack:
        assert stack.api.get(f"/v1/jobs/{job}/results").text == results
        again = stack.submit("again", pipeline="hybrid")
        stack.wait(again, ended)
        assert stack.get(f"/v1/jobs/{again}/report")["model_calls"] == 0


def _process(name: str) -> Model:
    return Model(driver="process", path=REPOSITORY / "models" / f"{name}-f16.gguf", footprint_mib=96)


async def _servers(stack: RunningStack, epochs: list[int]) -> list[Any]:
    database = Database(stack.database_url(), pinned=False)
    statement = text("SELECT servers FROM residencies WHERE epoch = ANY(:epochs) ORDER BY epoch")
    async with database.transaction() as connection:
        rows = (await connection.execute(statement, {"epochs": epochs})).scalars().all()
    await database.close()
    return [server for servers in rows for server in servers]
