"""What the API, the pages and the database are asked in one small world, as recorded in `tests/golden`."""

import html
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from shared.settings import REPOSITORY
from shared.storage.database import Database
from tests import golden
from tests.integration import scene
from tests.integration.api import Api, finished, serving
from tests.integration.pages.browsing import look, send, statements
from tests.integration.rule_banks import request, store_graph, work
from tests.integration.test_experiments import PAIR, submitted

pytestmark = pytest.mark.anyio
GATED = {"gate": {"min_pairs": 5}}
PAGES = """
/jobs /jobs/a-job /jobs/a-job/samples /jobs/a-job/samples/0 /jobs/a-job/report /jobs/a-job/audit
/compare?jobs=a-job&jobs=a-job-2 /compare/sample?left=a-job&right=a-job-2&index=0
/compare/changed?left=a-job&right=a-job-2
/compare/cases?left=a-job&left_index=0&right=a-job-2&right_index=1 /corpora /corpora/docs /datasets /datasets/items
/experiments /experiments/pair /labels /labels/set /labels/set/agreement /models /pipelines /pipelines/mathrag-gate
/plan /rules /rules/bank /search /submit /configuration /keys /jobs/missing
"""
ANSWERS = """
/v1/corpora /v1/corpora/docs /v1/corpora/docs/documents /v1/datasets /v1/datasets/items /v1/datasets/items/items
/v1/graphs /v1/graphs/g /v1/rules /v1/rules/bank /v1/rules/bank/rules /v1/jobs /v1/jobs/a-job /v1/jobs/a-job/report
/v1/jobs/a-job/audit /v1/jobs/a-job/samples /v1/jobs/a-job/samples/0
/v1/jobs/a-job/plan /v1/comparison?job=a-job&job=a-job-2 /v1/experiments /v1/experiments/pair
/v1/experiments/pair/report /v1/labels/sets /v1/labels/sets/set /v1/labels/sets/set/agreement /v1/gpus /v1/now
/v1/models /v1/models/world-judge /v1/pipelines/mathrag-gate /v1/configuration /v1/configuration/history /v1/settings
"""

OF_THE_CLONE = {"commit", "dirty", "image"}
"""What a job stores of the code that runs, which differs where there is no clone."""


@pytest.fixture
async def api(database: Database, redis_url: str) -> Any:
    await scene.furnish(database)
    async with serving(database, redis_url) as api:
        await store_graph(database, relations=("parent", "child"))
        assert (await api.http.post("/v1/rules", json=request())).status_code == 202
        await work(database)
        await api.job("mathrag-gate", params=GATED)
        await api.job("dense")
        await submitted(api, PAIR)
        await finished(database)
        await send(api, "/labels", {"name": "set", "job": "a-job", "what": "documents", "size": "5", "seed": "0"})
        yield api


class Names:
    """Replaces what differs from run to run."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def replace(self, text: str) -> str:
        """Number ids and long hashes by their first appearance, and leave times and durations out."""
        text = text.replace(str(REPOSITORY), "REPOSITORY")
        text = re.sub(r"dirty (yes|no|not known)|commit ([0-9a-f]{40}|not known)|/assets/[0-9a-f]{12}", "CODE", text)
        text = re.sub(r"\b[0-9a-f]{64}\b", self._number, text)
        text = re.sub(r"\b[0-9a-f]{8}(-?)[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{4}\1[0-9a-f]{12}\b", self._number, text)
        text = re.sub(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(\+00:00|Z| UTC)?", "TIME", text)
        text = re.sub(r"(<time [^>]*>)[^<]*", r"\1AGO", text)
        text = re.sub(r'name="csrf" value="[^"]*"', 'name="csrf" value="TOKEN"', text)
        text = re.sub(r"\b\d+(\.\d+)? (s|ms|min|h)\b", "DURATION", text)
        return re.sub(r"((retrieve|judge|generate|grade) |>)\d+\.\d\b(?=[,<])", r"\1SECONDS", text)

    def _number(self, found: re.Match[str]) -> str:
        return self._known.setdefault(found[0], f"ID-{len(self._known)}")


def shape(value: Any) -> Any:
    """Return the names and kinds of what a JSON value holds; a list is what its elements hold together."""
    match value:
        case dict():
            return {key: shape(value[key]) for key in sorted(value.keys() - OF_THE_CLONE)}
        case list():
            kinds = {json.dumps(shape(each)) for each in value}
            return [json.loads(kind) for kind in sorted(kinds)]
        case _:
            return type(value).__name__


def lines_of(page: str) -> Iterator[str]:
    """One tag or text a line, so that a difference is short."""
    return (line for line in re.sub(r"(<[^>]+>)", r"\n\1\n", page).split("\n") if line.strip())


async def test_pages_of_a_small_world_are_the_recorded_ones(api: Api) -> None:
    names = Names()
    for path in PAGES.split():
        page = (await look(api, path)).text
        # Every page has the same head and foot.
        own = page if path == "/jobs" else page[page.index("<main") : page.index("</main>")]
        name = re.sub(r"[^a-z0-9-]+", "_", path.partition("?")[0].strip("/"))
        golden.compare(f"pages/{name}.html", "\n".join(lines_of(names.replace(own))) + "\n")


async def test_answers_about_a_small_world_have_the_recorded_shapes(api: Api) -> None:
    shapes = {}
    for path in ANSWERS.split():
        reply = await api.http.get(path)
        assert reply.status_code == 200, reply.text
        shapes[path] = shape(reply.json())
    golden.compare("answers.json", json.dumps(shapes, indent=1) + "\n")


async def test_the_metrics_have_the_recorded_names(api: Api) -> None:
    page = (await api.http.get("/metrics")).text
    golden.compare("metrics.txt", "\n".join(sorted(line for line in page.splitlines() if line.startswith("# "))) + "\n")


async def test_a_job_sends_the_recorded_statements(database: Database) -> None:
    await scene.furnish(database)
    with statements(database) as sent:
        await scene.submit_job(database, params=GATED)
        await finished(database)
    # Sorted: schedulers and workers send them at once, so their order depends on timing.
    golden.compare("statements.sql", "\n\n".join(sorted({html.unescape(each) for each in sent})) + "\n")
