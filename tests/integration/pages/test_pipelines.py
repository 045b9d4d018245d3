"""Pipelines: what they do step by step, and the parameters that they read."""

import pytest

from shared.params import Params
from shared.pipelines import registry
from shared.samples import Library, Sample, Steps
from tests.integration import scene
from tests.integration.api import Api
from tests.integration.pages.browsing import look, rows, text

pytestmark = pytest.mark.anyio


async def test_a_list_says_what_every_pipeline_does(api: Api) -> None:
    found = {row.split()[0]: row for row in rows(await text(api, "/pipelines"))}
    assert tuple(sorted(found)) == registry.list_offered()
    assert found["closed-book"].endswith("Generate without documents. generate no")
    assert found["mathrag-gate"].endswith("generate, judge yes, calibrates first")


@pytest.mark.parametrize("name", registry.list_offered())
async def test_every_pipeline_has_a_page(api: Api, name: str) -> None:
    page = await text(api, f"/pipelines/{name}")
    registered = registry.get(name)
    shown = {row.split()[0] for row in rows(page)}
    assert shown
    assert not {path for path in shown if registered.ignores(path)}
    assert {path for path in ("generate.temperature", "rrf_k", "gate.tau") if not registered.ignores(path)} <= shown


async def test_a_pipeline_is_shown_step_by_step(api: Api) -> None:
    page = await text(api, "/pipelines/mathrag-gate")
    assert "Once per job, for each calibration item" in page
    assert "rate a document with the judge model" in page
    assert "Seed document 000" in page
    found = await api.get("/v1/pipelines/mathrag-gate")
    assert [step["calls"] for step in found["steps"]] == [{"retrieve": 2}, {"judge": 10}, {"generate": 1}]
    assert found["calibration"][0]["calls"] == {"retrieve": 2}
    assert (await api.get("/v1/pipelines/dense"))["calibration"] == []


async def test_a_parameter_has_default_bounds_and_meaning(api: Api) -> None:
    tau = next(row for row in rows(await text(api, "/pipelines/mathrag-gate")) if row.startswith("gate.tau"))
    assert tau == "gate.tau 0.45 -1 to 1 Correlation above which rules replace the judge."
    change = {"params": {"gate": {"tau": 0.3}}}
    await api.http.patch("/v1/configuration", json=change, headers={"If-Match": "*"})
    tau = next(row for row in rows(await text(api, "/pipelines/mathrag-gate")) if row.startswith("gate.tau"))
    assert tau.startswith("gate.tau 0.3 configured , 0.45 shipped -1 to 1")


async def test_jobs_with_a_pipeline_are_linked(api: Api) -> None:
    assert "mathrag job submit --name NAME --dataset NAME --pipeline dense --corpus NAME" in await text(
        api, "/pipelines/dense"
    )
    await api.job("dense")
    assert rows(await text(api, "/pipelines/dense"))[-1].startswith("a-job")
    assert "/submit?pipeline=dense" in await text(api, "/pipelines/dense")


async def test_an_unknown_pipeline_is_told_from_what_was_meant(api: Api) -> None:
    for name, meant in (
        ("mathrag-gat", "did you mean &#39;mathrag-gate&#39;?"),
        ("mine-rules", "mathrag pipeline list"),
    ):
        reply = await look(api, f"/pipelines/{name}")
        assert reply.status_code == 404
        assert meant in reply.text


async def test_a_pipeline_of_somebody_else_is_shown_too(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(sample: Sample, params: Params, library: Library) -> Steps:
        return (yield from scene.two_questions(sample, params, library))

    silent.__doc__ = None
    scene.install(monkeypatch, "silent", silent)
    page = await text(api, "/pipelines/silent")
    assert len(rows(page)) > 100
