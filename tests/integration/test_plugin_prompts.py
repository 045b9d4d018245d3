"""Prompts and rubrics of the operator's folders: jobs name them, keep what they are, and wait where they are others."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from shared.errors import Invalid
from shared.plugins import loading
from shared.settings import Plugins
from shared.storage.database import Database
from tests import plugins
from tests.integration.api import finished, serving
from tests.integration.scene import ScriptedExecutor, drain, furnish, job_states, rows, submit_job
from tests.plugins import restart
from tests.unit.shared.plugins.test_folders import prompt

pytestmark = pytest.mark.anyio

JOB = {"pipeline": "closed-book", "corpus": None}


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plugins]:
    plugins.site(tmp_path, monkeypatch)
    for folder, name, text in (("p", "terse.toml", prompt("terse", "Shortly: {{question}}")), ("r", "strict.txt", "A")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text)
    (tmp_path / "p" / "needy.toml").write_text(
        'id = "needy"\nversion = 1\nrequired = ["question", "answer"]\ntext = "{{question}} {{answer}}"\n'
    )
    made = Plugins(templates=tmp_path / "p", rubrics=tmp_path / "r")
    restart(monkeypatch, made)
    yield made
    loading._loaded = loading.Loaded()


async def test_a_job_asks_with_its_own_prompt_and_waits_where_that_has_changed(
    database: Database, redis_url: str, settings: Plugins, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert settings.templates is not None
    await furnish(database, items=2)
    await submit_job(database, **JOB, params={"generate": {"template": "terse"}})  # type: ignore[arg-type]
    file = settings.templates / "terse.toml"
    before = file.read_text()
    file.write_text(prompt("terse", "Shorter: {{question}}"))
    restart(monkeypatch, settings)
    await drain(database, ScriptedExecutor())
    assert await job_states(database) == ["running"]
    async with serving(database, redis_url) as api:
        [away] = (await api.get("/v1/jobs/a-job"))["waiting"]
    assert "put the file back as it was in `plugins.templates`, then restart the stack" in away["said"]
    file.write_text(before)
    restart(monkeypatch, settings)
    await finished(database)
    assert await job_states(database) == ["completed"]
    named = await rows(
        database,
        "SELECT DISTINCT convert_from(request, 'UTF8')::jsonb ->> 'template' FROM calls WHERE role = 'generate'",
    )
    assert [str(name).partition("@")[0] for (name,) in named] == ["terse"]
    async with serving(database, redis_url) as api:
        assert (await api.get("/v1/jobs/a-job/audit"))["clean"]


async def test_a_job_keeps_the_text_of_its_rubric(database: Database, settings: Plugins) -> None:
    await furnish(database, items=1)
    await submit_job(database, **JOB, params={"grading": {"grader": "rubric", "rubric": "@strict"}})  # type: ignore[arg-type]
    [(rubric,)] = await rows(database, "SELECT convert_from(params, 'UTF8')::jsonb -> 'grading' ->> 'rubric' FROM jobs")
    assert rubric == "A"


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ({"generate": {"template": "gone"}}, "no prompt 'gone' is in the folder `plugins.templates`"),
        ({"generate": {"template": "../secret"}}, "no prompt '../secret'"),
        ({"generate": {"template": "critic"}}, "no prompt 'critic'"),
        ({"generate": {"template": "needy"}}, r"prompt 'needy' needs \['answer'\]"),
        ({"grading": {"rubric": "@gone"}}, "no rubric 'gone' is in the folder `plugins.rubrics`"),
        ({"grading": {"rubric": "@../p/terse"}}, "no rubric '../p/terse'"),
    ],
)
async def test_what_is_not_in_the_folders_is_refused(
    database: Database, settings: Plugins, params: dict[str, object], said: str
) -> None:
    await furnish(database, items=1)
    with pytest.raises(Invalid, match=said):
        await submit_job(database, **JOB, params=params)  # type: ignore[arg-type]
