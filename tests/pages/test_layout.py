"""Where the blocks of the main pages stand in windows of two widths, compared with `tests/golden/layout.txt`.

The file holds what depends neither on fonts nor on the data of a run: the blocks, and which twelfths of the window each
covers, or nothing where a block is as wide as its text. Pixels are not compared: they differ between machines.
"""

from collections.abc import Sequence

import pytest
from playwright.sync_api import Browser

from shared.settings import REPOSITORY
from tests import golden
from tests.pages.browser import FOLDER, looking
from tests.pages.test_every_page import PAGES
from tests.running import RunningStack

MAIN = (
    "start", "job", "samples", "sample", "compare", "compare-answers", "submit", "experiments", "corpora", "now",
    "models", "documentation",
)  # fmt: skip
WIDTHS = (1400, 400)
READ = (FOLDER / "layout.js").read_text("utf-8")
TEMPLATES = "".join(
    file.read_text("utf-8") for file in sorted((REPOSITORY / "shared" / "pages" / "templates").rglob("*.html"))
)
# The pages refuse the style elements of others.
RESTYLE = """(rules) => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(rules);
    document.adoptedStyleSheets = [sheet];
}"""
FONTS = ("serif", "sans-serif", "monospace")
NAVIGATION = f"{'':12}   nav.from-medium"
WIDE = ".wide { overflow: visible } table { width: 1500px }"
LAST = "#main { display: flex; flex-direction: column } #progress { order: 1 }"
DEFECTS = {
    "a grid of one column": ("sample", ".cards { display: block }", "sample 1400 ############     h2 Answer"),
    "a navigation over the page": ("start", ".top { height: 3rem }", f"start 1400 {NAVIGATION}, OUT OF ITS FRAME"),
    "a header over the page": (
        "start",
        ".top { position: absolute }",
        "start 400 ############ main, ON AN EARLIER ONE",
    ),
    "a chart that shrinks": ("job", ".chart svg { width: 2rem }", "job 400 .#..........       svg"),
    "a table wider than the window": ("start", WIDE, "start 1400 ############   table.stacking, OUT OF ITS FRAME"),
    "a section at the end": ("job", LAST, "job 1400 ############   h2 The first wrong answers, ABOVE AN EARLIER ONE"),
}
"""Page, rules, and the line that they lead to."""


def read_layouts(browser: Browser, stack: RunningStack, pages: Sequence[str], styles: Sequence[str]) -> list[list[str]]:
    """For each of `styles`, which are added to that of the pages, the lines: page, width, twelfths, block."""
    layouts: list[list[str]] = [[] for _ in styles]
    for width in WIDTHS:
        # A script would load a part of a page later.
        options = {"viewport": {"width": width, "height": 900}, "java_script_enabled": False}
        with looking(browser, stack.url, **options) as window:
            for name in pages:
                page = window.open(PAGES[name])
                for style, layout in zip(styles, layouts, strict=True):
                    page.evaluate(RESTYLE, style)
                    layout += [f"{name} {width} {line}" for line in page.evaluate(READ, TEMPLATES)]
    return layouts


def test_the_blocks_of_the_main_pages_stand_where_they_are_recorded(browser: Browser, stack: RunningStack) -> None:
    (layout,) = read_layouts(browser, stack, MAIN, [""])
    golden.compare("layout.txt", "\n".join(layout) + "\n")


def test_they_stand_there_in_every_font_and_size(browser: Browser, stack: RunningStack) -> None:
    # The root's size stays as it is: columns are some rem wide, and a browser has a smaller rem for monospace.
    families = [f"body, body * {{ font-family: {font} !important }}" for font in FONTS]
    larger = [f"{each} body {{ font-size: 115% !important }}" for each in families]
    plain, *others = read_layouts(browser, stack, MAIN, ["", *families, *larger])
    assert [sorted(set(plain) ^ set(each)) for each in others] == [[]] * len(others)


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_planted_defect_changes_a_line(browser: Browser, stack: RunningStack, defect: str) -> None:
    page, rules, line = DEFECTS[defect]
    sound, broken = read_layouts(browser, stack, [page], ["", rules])
    assert line not in sound
    assert line in broken
