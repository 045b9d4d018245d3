"""What the check of every page's geometry finds, on pages with one planted defect each."""

import pytest
from playwright.sync_api import Browser

from tests.pages.browser import looking

SOUND = """<p>Words that break at their <b>ends</b>, at a hyphen as in world-generator,
and within what is too long, such as 7f83b1657ff1fc53b92dc18148a1d65dfc2d4b1fa3d677284addd200126d9069.</p>
<div style="overflow-x: auto; width: 5rem"><table><tr><td>scrolls</td><td>by</td><td>itself</td></tr></table></div>"""


def misplaced(browser: Browser, body: str, width: int = 400) -> list[str]:
    style = "body { font: 15px/1.5 sans-serif; margin: 1rem; overflow-wrap: break-word } td { white-space: nowrap }"
    with looking(browser, "", viewport={"width": width, "height": 900}) as window:
        window.page.set_content(f"<!doctype html><style>{style}</style>{SOUND}{body}")
        return window.misplaced()


@pytest.mark.parametrize("width", [320, 1400])
def test_a_sound_page_has_no_finding(browser: Browser, width: int) -> None:
    assert misplaced(browser, "", width) == []


@pytest.mark.parametrize(
    ("defect", "finding"),
    [
        ('<span style="display: inline-block; width: .7em">judge</span>', 'broken word judge: span "judge"'),
        ('<details><summary>More</summary><p style="width: 1em">judge</p></details>', 'broken word judge: p "judge"'),
        (
            '<p style="width: 2em; overflow-wrap: normal">generator</p>',
            'sticks out, generator: p "generator"',
        ),
        (
            '<p>left</p><p style="margin-top: -2.3em">right</p>',
            'overlap: p "left" and p "right"',
        ),
    ],
    ids=["a box of one letter", "a folded box", "a word wider than its box", "two texts on each other"],
)  # fmt: skip
def test_a_planted_defect_is_found(browser: Browser, defect: str, finding: str) -> None:
    assert misplaced(browser, defect) == [finding]
