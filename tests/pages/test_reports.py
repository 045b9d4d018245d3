"""A report's folder, opened from the disk: one design with the live pages."""

import re
import struct
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.pages.browser import looking
from tests.running import RunningStack, mathrag


@pytest.fixture(scope="module")
def report(stack: RunningStack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    for name, given in (("hostile", ["hostile"]), ("two", ["gate", "dense", "--pdf", "--png"])):
        ended = mathrag("report", "bundle", *given, "--out", str(out / name), MATHRAG_URL=stack.url)
        assert ended.returncode == 0, ended.stderr
    return out


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
def test_every_page_of_a_report_is_quiet_accessible_and_fits(
    browser: Browser, report: Path, width: int, theme: str
) -> None:
    for file in sorted(report.rglob("*.html")):
        with looking(browser, "file://", viewport={"width": width, "height": 900}, color_scheme=theme) as window:
            page = window.open(str(file))
            window.shot(f"report-{file.parent.name[:12]}-{file.stem}-{width}-{theme}")
            assert (window.wrong, window.too_wide(), window.inaccessible()) == ([], [], []), file
            assert "owned" not in page.title()


def test_mathematics_is_typeset_from_the_file_alone(browser: Browser, report: Path) -> None:
    with looking(browser, "file://") as window:
        (samples,) = report.glob("hostile/jobs/*/samples-001.html")
        page = window.open(str(samples))
        expect(page.locator("math").first).to_be_attached()
        assert page.locator("main a[href^=javascript]").count() == 0


def test_letters_of_figures_can_be_read_on_a_telephone(browser: Browser, report: Path) -> None:
    with looking(browser, "file://", viewport={"width": 400, "height": 900}) as window:
        page = window.open(str(next(report.glob("two/jobs/gate-*/index.html"))))
        sizes = page.eval_on_selector_all(
            ".drawn svg text",
            "all => all.filter(e => e.getBoundingClientRect().width > 0)"
            ".map(e => parseFloat(getComputedStyle(e).fontSize) * Math.hypot(e.getScreenCTM().a, e.getScreenCTM().b))",
        )
        assert len(sizes) > 20
        assert min(sizes) >= 8


def test_the_result_chart_and_examples_are_on_the_first_screen(browser: Browser, report: Path) -> None:
    with looking(browser, "file://", viewport={"width": 1400, "height": 900}) as window:
        page = window.open(str(report / "two" / "index.html"))
        for part in ("h1", ".sentence", ".first-screen .chart.from-medium", ".first-screen dl.facts", ".example"):
            for number in range(page.locator(part).count()):
                box = page.locator(part).nth(number).bounding_box()
                assert box is not None
                assert box["y"] + box["height"] <= 900, part
        assert page.locator(".example").count() >= 1
        expect(page.locator(".first-screen h2").last).to_have_text("What to do next")


def test_pdf_and_png_hold_the_first_screen_alone(browser: Browser, report: Path) -> None:
    png = (report / "two" / "report.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert struct.unpack(">II", png[16:24]) == (2800, 1800)
    pdf = (report / "two" / "report.pdf").read_bytes()
    assert len(re.findall(rb"/Type */Page\b", pdf)) == 1
    with looking(browser, "file://") as window:
        page = window.open(f"{report / 'two' / 'index.html'}#picture")
        expect(page.locator(".first-screen")).to_be_visible()
        expect(page.locator(".details")).to_be_hidden()


def test_a_printed_page_begins_with_the_first_screen_on_a_sheet_of_its_own(browser: Browser, report: Path) -> None:
    with looking(browser, "file://") as window:
        page = window.open(str(report / "two" / "index.html"))
        whole = page.pdf(prefer_css_page_size=True)
        assert len(re.findall(rb"/Type */Page\b", whole)) >= 2
        page.emulate_media(media="print")
        assert page.locator(".first-screen").evaluate("e => getComputedStyle(e).page") == "first-screen"
