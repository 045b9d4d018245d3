"""Experiments as pages: what they found, grids with missing cells, and states."""

import re

import pytest

from shared.storage.database import Database
from tests.integration.api import Api, finished
from tests.integration.conftest import Plant
from tests.integration.pages.browsing import look, rows, text
from tests.integration.test_comparison import right
from tests.integration.test_experiments import PAIR, WEIGHTS, submitted

pytestmark = pytest.mark.anyio
HOSTILE = {
    **PAIR, "name": "hostile", "grid": {"enhance.terms.<script>\u202e": [["<b>1</b>"], ["<b>2</b>"]]},
    "variants": [{"name": "enhanced", "pipeline": "enhanced"}], "baseline": None,
}  # fmt: skip


async def test_without_an_experiment_the_page_says_how_to_submit_one(api: Api) -> None:
    assert "mathrag experiment submit" in await text(api, "/experiments")


async def test_experiments_are_listed_with_their_state(api: Api, database: Database) -> None:
    await submitted(api)
    await finished(database)
    await submitted(api, {**PAIR, "name": "young", "repeats": 2})
    page = await text(api, "/experiments?limit=1")
    assert [row.split(" ")[:2] for row in rows(page)] == [["young", "running"]]
    (following,) = re.findall(r'href="([^"]+)" rel="next"', page)
    assert [row.split(" ")[0] for row in rows(await text(api, following.replace("&amp;", "&")))] == ["pair"]


async def test_the_headline_is_the_verdict_of_the_report(api: Api, database: Database, plant: Plant) -> None:
    await submitted(api)
    await finished(database)
    await right(plant, "pair-closed-1", [0])
    await right(plant, "pair-dense-2", [0, 1, 2])
    page = await text(api, "/experiments/pair")
    assert "<h1>No variant beats closed at n = 5; dense leads by 40 points, not separable</h1>" in page
    assert rows(page)[0].startswith("dense 60.0 %")
    assert rows(page)[1].startswith("closed (baseline) 20.0 %")
    found = await api.get("/v1/experiments/pair/report")
    assert f"<h1>{found['comparisons']['pooled']['finding']}</h1>" in page
    assert f'href="/v1/experiments/{found["id"]}/report"' in page


async def test_two_parameters_are_a_heat_map_whose_cells_lead_to_jobs(api: Api, database: Database) -> None:
    made = await submitted(api, WEIGHTS)
    await finished(database)
    page = await text(api, "/experiments/weights")
    cells = re.findall(r'<td class="(heat-\d|missing)">(.*?)</td>', page)
    assert len(cells) == 9
    assert [words for kind, words in cells if kind == "missing"] == ["refused"]
    assert {cell["job"] for cell in made["grid"] if cell["job"]} == set(re.findall(r'href="/jobs/([\w-]+)">\d', page))
    assert "4 cells share" in page or "3 cells share" in page


async def test_axes_are_chosen(api: Api, database: Database) -> None:
    await submitted(api, WEIGHTS)
    await finished(database)
    page = await text(api, "/experiments/weights?x=rrf_weight&y=none")
    assert page.count('role="img"') == 3
    assert "heat-" not in page
    for wrong in ("x=variant", "y=beauty", "x=rrf_weight&y=rrf_weight", "z=1", "measure=beauty"):
        assert (await look(api, f"/experiments/weights?{wrong}")).status_code == 422, wrong


async def test_one_that_still_runs_shows_what_is_done(api: Api) -> None:
    await submitted(api, {**PAIR, "grid": {"context_size": [1, 2], "candidates": [2, 3]}})
    page = await text(api, "/experiments/pair?x=context_size&y=candidates")
    assert "<h1>Nothing can be compared yet" in page
    assert "0 of 25 samples done" in page
    assert ">running<" in page
    assert "reload" in page


async def test_hostile_parameters_do_not_act(api: Api, database: Database) -> None:
    await submitted(api, HOSTILE)
    await finished(database)
    page = await text(api, "/experiments/hostile")
    assert "&lt;b&gt;1" in page
    assert "U+202E" in page
    assert "<b>1" not in page
    assert "\u202e" not in re.sub(r'value="[^"]*"', "", page)  # a form sends it back as it is
    assert (await look(api, "/experiments/%3Cscript%3E%E2%80%AE")).status_code == 404


@pytest.mark.parametrize("name", ["nowhere", "%3Cscript%3E", "%00"])
async def test_an_unknown_experiment_is_a_page_that_says_so(api: Api, name: str) -> None:
    reply = await look(api, f"/experiments/{name}")
    assert reply.status_code in (404, 422)
    assert "<script>" not in reply.text
