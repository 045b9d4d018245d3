"""Prompts that users store: versions, pins, what models are sent, and the pages."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from shared.calls import Completion, Lane, Message, ModelCall
from shared.runtime.prompting import PromptExecutor
from shared.storage.database import Database
from tests.integration import scene
from tests.integration.api import Api, finished
from tests.integration.pages.browsing import look, send, text
from tests.integration.scene import advance, force, rows, scalar

pytestmark = pytest.mark.anyio

SHORT = {
    "name": "short", "text": "{{context}}Briefly: {{question}}", "system": "You are brief.",
    "examples": [{"question": "What is 1 plus 1?", "answer": "2"}],
}  # fmt: skip


@pytest.fixture
async def api(database: Database, empty_api: Api) -> Api:
    await scene.furnish(database)
    return empty_api


async def store(api: Api, **changes: Any) -> Any:
    reply = await api.http.post("/v1/prompts", json={**SHORT, **changes})
    assert reply.status_code in (200, 201), reply.text
    return reply.json()


async def template_of(api: Api, job: str) -> str:
    return str((await api.get(f"/v1/jobs/{job}"))["params"]["generate"]["template"])


class RecordingGuards:
    """Answers every call, and keeps it."""

    def __init__(self) -> None:
        self.calls: list[ModelCall] = []

    @property
    def prompts(self) -> list[Any]:
        return [call.prompt for call in self.calls]

    async def run(self, _device: str, _epoch: int | None, calls: Sequence[ModelCall]) -> AsyncIterator[Completion]:
        for call in calls:
            self.calls.append(call)
            now = datetime.now(UTC)
            yield Completion(
                id=call.id, text="4", finish_reason="stop", started_at=now, ended_at=now, device="cpu:0", epoch=1,
                concurrency=1,
            )  # fmt: skip


async def test_each_content_of_a_name_is_a_version(api: Api) -> None:
    first = await store(api)
    assert (first["version"], first["origin"], first["examples"]) == (1, "stored", SHORT["examples"])
    assert await store(api) == first
    second = await store(api, system="")
    assert (second["version"], second["hash"] == first["hash"]) == (2, False)
    back = await store(api)
    assert (back["version"], back["hash"]) == (3, first["hash"])
    assert [each["version"] for each in await api.get("/v1/prompts/short/versions")] == [3, 2, 1]
    assert await api.get("/v1/prompts/short") == back
    assert await api.get("/v1/prompts/short@2") == second
    assert (await api.get(f"/v1/prompts/short@{second['hash']}"))["version"] == 2
    names = [each["name"] for each in await api.get("/v1/prompts")]
    assert names == ["short", "cot", "choice", "short-answer", "answer", "cited"]


async def test_versions_are_compared_line_by_line(api: Api) -> None:
    await store(api)
    await store(api, text="{{context}}Now: {{question}}")
    found = await api.get("/v1/prompts/short@1/differences", other="short")
    assert (found["left"]["version"], found["right"]["version"]) == (1, 2)
    differing = [(each["side"], each["text"]) for each in found["difference"]["lines"] if each["side"] != "both"]
    assert differing == [("left", "{{context}}Briefly: {{question}}"), ("right", "{{context}}Now: {{question}}")]


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"text": "Say something."}, 422, "has no {{question}}"),
        ({"text": "{{question}} {{documents}}"}, 422, "uses {{documents}}"),
        ({"text": ""}, 422, "text"),
        ({"name": "short@2"}, 422, "is not a valid name"),
        ({"name": "cot"}, 409, "belongs to a shipped prompt"),
        ({"temperature": 1}, 422, "temperature"),
        ({"examples": [{"question": "What?"}]}, 422, "answer"),
        ({"examples": [{"question": "q", "answer": "a"}] * 33}, 422, "examples"),
        ({"system": "x" * 20_000}, 422, "system"),
        ({"examples": [{"question": "q" * 9_000, "answer": "a"}] * 8}, 413, "shorten its texts"),
    ],
)
async def test_a_prompt_that_cannot_be_used_is_refused(
    api: Api, changes: dict[str, Any], status: int, said: str
) -> None:
    reply = await api.http.post("/v1/prompts", json={**SHORT, **changes})
    assert (reply.status_code, said in reply.text) == (status, True), reply.text
    assert (await api.http.get("/v1/prompts/short")).status_code == 404


async def test_a_job_keeps_the_version_that_it_was_submitted_with(api: Api, database: Database) -> None:
    first = await store(api)
    await api.job("dense", params={"generate": {"template": "short"}})
    await store(api, system="")
    await finished(database)
    assert await template_of(api, "a-job") == f"short@{first['hash']}"
    sample = await api.get("/v1/jobs/a-job/samples/0", prompts="true")
    [sent] = [step["prompt"] for step in sample["steps"] if step["role"] == "generate"]
    assert sent.startswith(
        "[system]\nYou are brief.\n\n[user]\nBriefly: What is 1 plus 1?\n\n[assistant]\n2\n\n[user]\n"
    )
    assert sent.endswith("Briefly: What is 0 plus 0?")
    assert (await api.get("/v1/jobs/a-job/audit"))["clean"]


async def test_a_model_gets_the_system_prompt_and_the_examples_as_messages(api: Api, database: Database) -> None:
    await store(api)
    await api.job("closed-book", params={"generate": {"template": "short"}}, limit=1)
    await advance(database)
    guards = RecordingGuards()
    executor = PromptExecutor(database, guards)  # type: ignore[arg-type]
    await scene.worker(database, Lane.GENERATE, executor).drain()
    assert guards.prompts == [
        (
            Message(role="system", content="You are brief."),
            Message(role="user", content="Briefly: What is 1 plus 1?"),
            Message(role="assistant", content="2"),
            Message(role="user", content="Briefly: What is 0 plus 0?"),
        )
    ]


async def test_the_same_content_under_another_name_needs_no_new_call(api: Api, database: Database) -> None:
    await store(api)
    await store(api, name="other")
    await api.job("dense", params={"generate": {"template": "short"}})
    await finished(database)
    calls = await scalar(database, "SELECT count(*) FROM calls")
    await api.job("dense", params={"generate": {"template": "other"}})
    await finished(database)
    assert await scalar(database, "SELECT count(*) FROM calls") == calls
    await store(api, name="other", system="")
    await api.job("dense", params={"generate": {"template": "other"}})
    await finished(database)
    assert await scalar(database, "SELECT count(*) FROM calls WHERE role = 'generate'") == 10


async def test_a_changed_row_is_not_sent_to_a_model(api: Api, database: Database, owner_url: str) -> None:
    await store(api)
    await api.job("closed-book", params={"generate": {"template": "short"}}, limit=1)
    await advance(database)
    changed = "replace(convert_from(content, 'UTF8'), 'brief', 'long')::bytea"
    await force(owner_url, f"UPDATE prompts SET content = {changed}")  # noqa: S608
    guards = RecordingGuards()
    executor = PromptExecutor(database, guards)  # type: ignore[arg-type]
    await scene.worker(database, Lane.GENERATE, executor).drain()
    assert guards.prompts == []
    [(reply,)] = await rows(database, "SELECT DISTINCT convert_from(reply, 'UTF8') FROM attempts")
    assert "backend_error" in str(reply)


@pytest.mark.parametrize(
    ("pipeline", "template", "said"),
    [
        ("dense", "shor", "did you mean 'short'?"),
        ("dense", "short@7", "has no version 7"),
        ("dense", "blind", "has no {{context}}"),
        ("rulerag", "short", "generate.template"),
        ("dense", "critic", "no prompt 'critic'"),
    ],
)
async def test_a_job_with_a_prompt_that_does_not_fit_is_refused(
    api: Api, pipeline: str, template: str, said: str
) -> None:
    await store(api)
    await store(api, name="blind", text="{{question}}")
    body = {"name": "refused", "dataset": "items", "corpus": "docs", "pipeline": pipeline}
    reply = await api.http.post("/v1/jobs", json={**body, "params": {"generate": {"template": template}}})
    assert (reply.status_code, said in reply.text) == (422, True), reply.text
    assert reply.json()["hint"]


async def test_a_prompt_without_documents_serves_a_pipeline_without_documents(api: Api, database: Database) -> None:
    await store(api, name="blind", text="{{question}}", system="", examples=[])
    await api.job("closed-book", params={"generate": {"template": "blind"}})
    await finished(database)
    sample = await api.get("/v1/jobs/a-job/samples/0", prompts="true")
    assert sample["steps"][0]["prompt"] == "What is 0 plus 0?"


@pytest.mark.parametrize(
    ("grader", "template", "begins"),
    [
        ("math", "", "Solve the problem"),
        ("choice", "choice", "Choose the correct option"),
        ("f1", "short-answer", "Answer the question with a name"),
        ("rubric", "answer", "Answer the question completely"),
    ],
)
async def test_the_shipped_prompt_asks_for_what_the_grader_reads(
    api: Api, database: Database, grader: str, template: str, begins: str
) -> None:
    await api.job("dense", params={"grading": {"grader": grader}}, models={"judge": "a-judge"})
    await finished(database)
    assert await template_of(api, "a-job") == template
    sample = await api.get("/v1/jobs/a-job/samples/0", prompts="true")
    assert any((step["prompt"] or "").startswith(begins) for step in sample["steps"] if step["role"] == "generate")


async def test_a_job_of_an_earlier_release_is_repeated_with_its_prompt(
    api: Api, database: Database, owner_url: str
) -> None:
    await api.job("dense", params={"grading": {"grader": "f1"}, "generate": {"template": "cot"}})
    await finished(database)
    before, after = (f'"template":"{name}"' for name in ("cot", ""))
    changed = "replace(convert_from(params, 'UTF8'), :before, :after)::bytea"
    await force(owner_url, f"UPDATE jobs SET params = {changed}", before=before, after=after)  # noqa: S608
    reply = await api.http.post("/v1/jobs/a-job/requeue")
    assert reply.status_code == 202, reply.text
    assert await template_of(api, reply.json()["id"]) == ""


# The pages: the list, the editor, a trial, and differences beside a sample and in a comparison.


EDITED = {"name": "short", "text": "{{context}}Briefly: {{question}}", "system": "You are brief."}


async def test_an_editor_stores_the_next_version(api: Api) -> None:
    page = await text(api, "/prompts")
    assert "Solve the problem step by step" in page
    assert "New prompt" in page
    example = {"example-1-question": "What is 1 plus 1?", "example-1-answer": "2"}
    reply = await send(api, "/prompts", {**EDITED, **example, "action": "save"})
    assert reply.headers["location"] == "/prompts/short"
    assert (await api.get("/v1/prompts/short"))["examples"] == SHORT["examples"]
    await send(api, "/prompts", {**EDITED, "action": "save"})
    page = await text(api, "/prompts/short?other=short%401")
    assert "Version 2 of 2" in page
    assert "example 1, answer: 2" in page


async def test_an_editor_keeps_what_was_written_beside_what_is_wrong(api: Api) -> None:
    for name in ("fresh", "short"):
        await store(api)
        reply = await send(api, "/prompts", {"name": name, "text": "Written, without a question.", "action": "save"})
        assert reply.status_code == 422
        assert "Written, without a question." in reply.text
        assert "{{question}}" in reply.text


async def test_a_prompt_is_tried_on_three_questions(api: Api, database: Database) -> None:
    chosen = {"dataset": "items", "corpus": "docs", "pipeline": "dense", "action": "try"}
    reply = await send(api, "/prompts", {**EDITED, **chosen})
    trial = reply.headers["location"]
    assert trial.startswith("/prompts/short?trial=")
    assert 'http-equiv="refresh"' in await text(api, trial)
    await finished(database)
    page = await text(api, trial)
    assert 'http-equiv="refresh"' not in page
    assert page.count("Prompt as sent") == 3
    assert "Briefly: What is 2 plus 2?" in page
    assert "What is 3 plus 3?" not in page
    assert await rows(database, "SELECT total FROM jobs") == [(3,)]


async def test_a_trial_without_a_dataset_says_so(api: Api) -> None:
    reply = await send(api, "/prompts", {**EDITED, "action": "try"})
    assert reply.status_code == 422
    assert "the prompt is tried on its first questions" in reply.text
    assert (await api.http.get("/v1/prompts/short")).status_code == 404


async def test_an_editor_reads_no_more_examples_than_a_prompt_may_have(api: Api) -> None:
    strange = {f"example-{number}-question": "q" for number in ("0", "33", "999999999999", "9" * 5000, "٣", "")}
    for number in (1, 32):
        strange |= {f"example-{number}-question": "q", f"example-{number}-answer": str(number)}
    reply = await send(api, "/prompts", {**EDITED, **strange, "action": "save"})
    assert reply.headers["location"] == "/prompts/short"
    stored = (await api.get("/v1/prompts/short"))["examples"]
    assert [each["answer"] for each in stored] == ["1", "32"]
    assert "example-33" not in await text(api, "/prompts/short")


async def test_a_sample_and_a_comparison_show_how_prompts_differ(api: Api, database: Database) -> None:
    await store(api)
    await api.job("dense", params={"generate": {"template": "short"}})
    await api.job("dense")
    await finished(database)
    page = await text(api, "/jobs/a-job/samples/0")
    assert '<a href="/prompts/short?version=1">short</a>' in page
    assert "How it differs from the shipped prompt cot" in page
    assert "How it differs" not in await text(api, "/jobs/a-job-2/samples/0")
    page = await text(api, "/compare?jobs=a-job&jobs=a-job-2")
    assert "<h2>Prompts</h2>" in page
    assert "Solve the problem step by step" in page
    await api.job("hybrid")
    await finished(database)
    assert "<h2>Prompts</h2>" not in await text(api, "/compare?jobs=a-job-2&jobs=a-job-3")


async def test_a_missing_prompt_is_a_page_that_says_so(api: Api) -> None:
    reply = await look(api, "/prompts/gone")
    assert reply.status_code == 404
    assert "no prompt" in reply.text
