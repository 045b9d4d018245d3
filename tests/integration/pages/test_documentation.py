"""The documentation as pages, and the links to it."""

import re

import pytest

from services.orchestrator.web.documentation import FOLDER, render
from services.orchestrator.web.page import link_documentation
from tests.integration.api import Api
from tests.integration.pages.browsing import look, text

pytestmark = pytest.mark.anyio
PAGES = sorted(FOLDER.rglob("*.md"))


async def test_every_page_of_the_documentation_is_served_with_its_pictures(api: Api) -> None:
    start = await look(api, "/help")
    assert (start.status_code, start.headers["location"]) == (303, "/help/index.md")
    shown = await text(api, "/help/how-to/api.md")
    assert '<h2 id="tags">' in shown
    assert "<table>" in shown
    assert 'href="/help/index.md">Documentation</a>' in await text(api, "/jobs")
    picture = await look(api, "/help/assets/compare.png")
    assert picture.headers["content-type"] == "image/png"
    for wrong in (
        "absent.md",
        "../pyproject.toml",
        "%2e%2e/pyproject.toml",
        "tutorial/python.ipynb",
        "how-to",
        "%00.md",
        f"{'x' * 5000}.md",
    ):
        assert (await look(api, f"/help/{wrong}")).status_code == 404


def test_links_between_pages_lead_to_headings_that_exist() -> None:
    anchors = {page: set(re.findall(r'<h\d id="([^"]+)"', render(page)[1])) for page in PAGES}
    wrong = []
    for page in PAGES:
        for target in re.findall(r'href="(?!https?:|mailto:)([^"]+)"', render(page)[1]):
            path, _, anchor = target.partition("#")
            linked = (page.parent / path).resolve() if path else page
            if linked.suffix == ".md" and linked.is_relative_to(FOLDER) and anchor not in {"", *anchors[linked]}:
                wrong.append(f"{page.relative_to(FOLDER)}: {target}")
    assert wrong == []


def test_a_page_that_a_text_names_becomes_a_link() -> None:
    made = link_documentation("`tau` (docs/how-to/api.md#tags; <b>, no/docs/how-to/api.md)")
    assert made == (
        '<code>tau</code> (<a href="/help/how-to/api.md#tags">docs/how-to/api.md#tags</a>; &lt;b&gt;,'
        " no/docs/how-to/api.md)"
    )


async def test_the_fields_of_a_job_link_to_their_pages(api: Api) -> None:
    page = await text(api, "/submit?pipeline=mathrag-gate")
    linked = set(re.findall(r'href="/help/([^"#]+)', page))
    assert linked >= {"how-to/graders.md", "how-to/prompts.md", "reference/parameters.md"}
    assert linked <= {str(page.relative_to(FOLDER)) for page in PAGES}
    rows = set(re.findall(r'<tr id="([^"]+)">', await text(api, "/help/reference/parameters.md")))
    assert "gate.tau" in rows
    assert set(re.findall(r'parameters\.md#([^"]+)"', page)) <= rows
