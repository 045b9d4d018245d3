"""What holds for every page: it is quiet, accessible, legible, fits its window in both themes, and needs no script."""

import re
from typing import Any

import pytest
from fastapi.routing import APIRoute
from playwright.sync_api import Browser

from services.orchestrator.web import site
from tests.pages import world
from tests.pages.browser import Seen, looking
from tests.running import REPOSITORY, RunningStack

PAGES = {
    "start": "/",
    "now": "/now",
    "jobs": "/jobs",
    "jobs-filtered": "/jobs?state=completed&pipeline=dense",
    "jobs-none": "/jobs?name=nobody",
    "job": "/jobs/gate",
    "job-failed": "/jobs/broken",
    "job-hostile": "/jobs/hostile",
    "audit": "/jobs/gate/audit",
    "price": "/jobs/gate/price",
    "report": "/jobs/gate/report",
    "report-hostile": "/jobs/hostile/report",
    "samples": "/jobs/gate/samples",
    "samples-hostile": "/jobs/hostile/samples?state=completed",
    "sample": "/jobs/gate/samples/0",
    "sample-hostile": "/jobs/hostile/samples/0",
    "sample-long": "/jobs/hostile/samples/1",
    "compare-choose": "/compare",
    "compare-one": "/compare?jobs=gate",
    "compare": "/compare?jobs=gate&jobs=dense&jobs=closed",
    "compare-answers": "/compare/answers?jobs=gate&jobs=dense&jobs=closed",
    "compare-answers-hostile": "/compare/answers?jobs=hostile&jobs=gate",
    "compare-changed": "/compare/changed?left=gate&right=dense",
    "compare-sample": "/compare/sample?left=gate&right=dense&index=0",
    "compare-cases": "/compare/cases?left=gate&left_index=0&right=dense&right_index=1",
    "experiments": "/experiments",
    "experiment": "/experiments/grid",
    "corpora": "/corpora",
    "corpus": "/corpora/hostile",
    "corpus-contamination": "/corpora/world/contamination?dataset=world",
    "document": f"/corpora/hostile/documents/{world.DOCUMENT_HASH}",
    "datasets": "/datasets",
    "dataset": "/datasets/hostile",
    "prompts": "/prompts",
    "prompt": "/prompts/cot",
    "models": "/models",
    "model": "/models/world-judge",
    "model-connect": "/models/connect",
    "model-chosen": f"/models/connect?what={REPOSITORY}/models/rules-generator-f16.gguf",
    "documentation": "/help/how-to/operations.md",
    "pipelines": "/pipelines",
    "pipeline": "/pipelines/mathrag-gate",
    "rules": "/rules",
    "bank": "/rules/family",
    "labels": "/labels",
    "label-set": "/labels/blind",
    "label-task": "/labels/blind/tasks/1",
    "label-agreement": "/labels/blind/agreement",
    "configuration": "/configuration",
    "keys": "/keys",
    "search": "/search",
    "search-found": "/search?corpus=hostile&q=number&k=5",
    "plan": "/plan",
    "plan-made": "/plan?dataset=world&corpus=world&pipeline=mathrag-gate",
    "submit": "/submit",
    "submit-again": "/submit?from=gate",
    "doctor": "/doctor",
    "doctor-everything": "/doctor/everything",
    "find": "/find",
    "find-found": "/find?text=gate",
    "find-hostile": "/find?text=script",
    "find-nothing": "/find?text=zzz%3Cscript%3E",
    "not-found": "/jobs/nobody",
}
"""Address by the name of its screenshots; what stands in no list is said by the last test."""
ELSEWHERE = {"/assets/{path:path}", "/favicon.ico", "/sign-in", "/compare/cases.html", "/help"}
"""No pages of this stack, which asks for no keys; the last two are a file to keep, and an address that leads on."""
SIZES = {"wide": 1400, "narrow": 375}


def went_wrong(window: Seen, path: str) -> list[str]:
    return [] if path == PAGES["not-found"] else window.wrong


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_quiet_accessible_legible_and_fits(
    browser: Browser, stack: RunningStack, name: str, size: str, theme: Any
) -> None:
    with looking(browser, stack.url, viewport={"width": SIZES[size], "height": 900}, color_scheme=theme) as window:
        page = window.open(PAGES[name])
        page.wait_for_timeout(200)
        window.shot(f"{name}-{SIZES[size]}-{theme}")
        assert went_wrong(window, PAGES[name]) == []
        assert window.too_wide() == []
        assert window.inaccessible() == []
        assert window.misplaced() == []
        assert window.unworded() == []
        assert "owned" not in page.title()
        assert page.locator("h1").count() == 1


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_the_same_without_scripts(browser: Browser, stack: RunningStack, name: str) -> None:
    with looking(browser, stack.url, java_script_enabled=False) as plain, looking(browser, stack.url) as scripted:
        texts = [window.open(PAGES[name]).locator("main").text_content() or "" for window in (plain, scripted)]
    words = [re.sub(r"just now|\d+ (?:min|h) ago", "", each) for each in texts]
    assert words[0].split()[:20] == words[1].split()[:20]
    assert len(words[0]) > 20


@pytest.mark.parametrize("width", [360, 2560])
def test_pages_fit_the_smallest_and_the_largest_window(browser: Browser, stack: RunningStack, width: int) -> None:
    with looking(browser, stack.url, viewport={"width": width, "height": 900}) as window:
        wide = {
            name: found
            for name, path in PAGES.items()
            if window.open(path) and (found := [*window.too_wide(), *window.misplaced()])
        }
    assert wide == {}


def test_no_page_is_left_out() -> None:
    routes = [route for part in site.PARTS for route in part.router.routes if isinstance(route, APIRoute)]
    shown = {route.path for route in routes if "GET" in route.methods and not route.path.startswith("/live/")}
    patterns = {
        path: re.compile(re.sub(r"\{[^}]+\}", "[^/?]+", path.replace("{path:path}", ".+")))
        for path in shown - ELSEWHERE
    }
    listed = [path.partition("?")[0] for path in PAGES.values()]
    left_out = [path for path, pattern in patterns.items() if not any(map(pattern.fullmatch, listed))]
    assert left_out == []
