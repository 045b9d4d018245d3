"""A report's folder, opened from the disk: one design with the live pages."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.pages.browser import looking
from tests.running import RunningStack, mathrag


@pytest.fixture(scope="module")
def report(stack: RunningStack, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    for name, jobs in (("hostile", ["hostile"]), ("two", ["gate", "dense"])):
        ended = mathrag("report", "bundle", *jobs, "--out", str(out / name), MATHRAG_URL=stack.url)
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
