"""Ways through the pages, as somebody goes them who is there for the first time: by mouse, by keyboard, and live."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.pages import world
from tests.pages.browser import Seen, looking
from tests.running import RunningStack, ended

# Everything can be reached by keyboard alone.


def test_the_first_stop_of_the_tabulator_skips_the_navigation(seen: Seen) -> None:
    page = seen.open("/jobs")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()


def test_keys_walk_the_rows_and_open_one(seen: Seen) -> None:
    page = seen.open("/jobs")
    rows = page.locator("tr[data-row]")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    expect(rows.nth(0)).to_have_class("current")
    opened = rows.nth(0).locator("a").first.get_attribute("href")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{opened}")


def test_a_slash_goes_to_the_filter_and_letters_typed_there_are_letters(seen: Seen) -> None:
    page = seen.open("/jobs")
    page.keyboard.press("/")
    page.keyboard.type("jk?")
    expect(page.locator("[data-filter]")).to_have_value("jk?")
    page.keyboard.press("Escape")
    expect(page.locator("tr.current")).to_have_count(0)


def test_control_k_goes_to_the_search_box_which_finds_a_job(seen: Seen) -> None:
    page = seen.open("/submit")
    page.get_by_label("Name", exact=True).focus()
    page.keyboard.press("Control+k")
    page.keyboard.type("gat")
    page.keyboard.press("Enter")
    page.wait_for_url("**/find?text=gat")
    page.get_by_role("link", name="gate", exact=True).click()
    expect(page.locator("h1")).to_have_text("gate")


def test_a_question_mark_lists_the_keys(seen: Seen) -> None:
    page = seen.open("/doctor")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()


# Pages that keep themselves up to date, also after their connection was lost.

SOON = 60_000
"""Milliseconds: a safety net."""


def test_a_job_that_comes_is_seen_and_so_is_its_end(seen: Seen, stack: RunningStack) -> None:
    page = seen.open("/now")
    expect(page.locator("#jobs")).to_contain_text("No job runs")
    job = world.submit(stack, "appears", repeats=4, reuse="none")
    expect(page.locator("#jobs")).to_contain_text("appears", timeout=SOON)
    expect(page.locator("#lanes")).to_contain_text("world-judge", timeout=SOON)
    stack.wait(job, ended)
    expect(page.locator("#jobs")).to_contain_text("No job runs", timeout=SOON)


def test_a_page_that_lost_its_connection_is_right_again(browser: Browser, stack: RunningStack) -> None:
    with looking(browser, stack.url) as window:
        page = window.open("/now")
        expect(page.locator("#jobs")).to_contain_text("No job runs")
        page.context.set_offline(True)
        stack.restart("orchestrator")
        job = world.submit(stack, "meanwhile", repeats=6, reuse="none")
        page.context.set_offline(False)
        expect(page.locator("#jobs")).to_contain_text("meanwhile", timeout=SOON)
        expect(page.locator("#jobs tr[data-row]")).to_have_count(1)
        stack.wait(job, ended)
        expect(page.locator("#jobs")).to_contain_text("No job runs", timeout=SOON)


@pytest.mark.parametrize(
    ("hours", "words"),
    [(0.5, r"^\d+ min ago$"), (5.5, "^[56] h ago$"), (99, "^4 days ago$"), (9999, r"^\d{4}-\d\d-\d\d$")],
)
def test_times_grow_on_a_page_that_stays_open(seen: Seen, hours: float, words: str) -> None:
    seen.page.clock.install()
    page = seen.open("/datasets")
    time = page.locator("time").first
    page.clock.fast_forward(int(3_600_000 * hours))
    expect(time).to_have_text(re.compile(words))
    expect(time).to_have_attribute("title", re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC$"))


@pytest.mark.parametrize("scripts", [True, False])
def test_on_a_phone_every_page_is_in_the_menu(browser: Browser, stack: RunningStack, scripts: bool) -> None:
    options = {"viewport": {"width": 400, "height": 900}, "java_script_enabled": scripts}
    with looking(browser, stack.url, **options) as window:
        page = window.open("/")
        expect(page.get_by_role("link", name="Doctor")).to_have_count(0)
        page.get_by_text("Menu", exact=True).click()
        page.get_by_role("navigation", name="Menu").get_by_role("link", name="Doctor").click()
        page.wait_for_url("**/doctor")


@pytest.mark.parametrize("path", ["/", "/now", "/jobs"])
def test_pages_are_small(seen: Seen, stack: RunningStack, path: str) -> None:
    session = seen.page.context.new_cdp_session(seen.page)
    session.send("Network.enable")
    sizes: list[int] = []
    session.on("Network.loadingFinished", lambda event: sizes.append(int(event["encodedDataLength"])))
    page = seen.open(path)
    assert re.search("MathRAG", page.title())
    assert 0 < sum(sizes) <= 100_000


# The main way through each page.


def test_a_job_is_submitted_by_the_form_and_watched_to_its_end(seen: Seen, stack: RunningStack) -> None:
    page = seen.open("/submit?dataset=world&corpus=world&pipeline=dense")
    page.get_by_label("Name").first.fill("by-form")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url("**/jobs/*")
    expect(page.locator(".headline")).to_contain_text("Completed", timeout=SOON)
    assert len(stack.get("/v1/jobs?name=by-form")["data"]) == 1


def test_a_field_that_is_wrong_is_said_beside_it_and_nothing_is_lost(browser: Browser, stack: RunningStack) -> None:
    with looking(browser, stack.url) as window:
        page = window.open("/submit?dataset=world&corpus=world&pipeline=mathrag-gate")
        page.get_by_label("Name").first.fill("wrong one")
        page.get_by_role("button", name="Submit", exact=True).click()
        expect(page.locator(".field-error").first).to_be_visible()
        expect(page.get_by_label("Name").first).to_have_value("wrong one")


def test_a_search_says_why_each_document_was_found(seen: Seen) -> None:
    page = seen.open("/search")
    page.get_by_label("Corpus").first.select_option("world")
    page.locator("input[name=q], textarea[name=q]").first.fill("What is the value of 2 quopo 4?")
    page.get_by_role("button", name=re.compile("Search")).first.click()
    page.wait_for_url("**/search?*q=*")
    expect(page.locator("main")).to_contain_text(re.compile("rank", re.IGNORECASE))


def test_samples_are_filtered_and_one_is_opened(seen: Seen) -> None:
    page = seen.open("/jobs/gate/samples")
    page.get_by_label("Verdict").select_option("true")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**correct=true**")
    page.locator("tr[data-row] a").first.click()
    expect(page.locator("main")).to_contain_text("right")
    before = page.url
    page.keyboard.press("n")
    page.wait_for_url(lambda url: url != before)


def test_a_job_is_compared_from_its_page(seen: Seen) -> None:
    page = seen.open("/jobs/gate")
    page.get_by_role("navigation", name="Of this job").get_by_role("link", name="Compare").click()
    expect(page.get_by_role("checkbox", name="gate", exact=True)).to_be_checked()
    page.get_by_role("checkbox", name="dense", exact=True).check()
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("h1")).to_contain_text("n = ")


def test_jobs_are_chosen_and_compared(seen: Seen) -> None:
    page = seen.open("/compare?dataset=world")
    for name in ("gate", "dense"):
        page.get_by_role("checkbox", name=re.compile(rf"^{name}\b")).first.check()
    page.get_by_role("button", name=re.compile("Compare")).click()
    expect(page.locator("h1")).to_contain_text("n = ")


def test_neither_side_of_a_difference_has_the_colour_of_a_verdict(seen: Seen) -> None:
    """The one on the left may have won: its lines are not red, and the other's are not green."""
    page = seen.open("/compare/sample?left=gate&right=dense&index=0")
    for side in ("left", "right"):
        ground = page.locator(f"table.difference tr.{side}").first.evaluate(
            "(e) => getComputedStyle(e).backgroundColor"
        )
        red, green, blue = map(float, re.findall(r"[\d.]+", ground)[:3])
        assert red <= 1.04 * max(green, blue)
        assert green <= 1.005 * max(red, blue)


def test_a_document_is_labelled_by_a_key(seen: Seen, stack: RunningStack) -> None:
    page = seen.open("/labels/blind")
    before = page.locator("h1").inner_text()
    page.keyboard.press("4")
    expect(page.locator("h1")).not_to_have_text(before)
    assert stack.get("/v1/labels/sets/blind")["labellers"][0]["labels"] == 13


def test_a_plan_follows_the_slider(seen: Seen) -> None:
    page = seen.open("/plan?dataset=world&corpus=world&pipeline=mathrag-gate")
    fits = page.locator("h1").inner_text()
    page.locator("#memory").fill("50")
    page.keyboard.press("Tab")
    expect(page.locator("h1")).not_to_have_text(fits)


def test_a_device_is_emptied_and_used_again(seen: Seen, stack: RunningStack) -> None:
    page = seen.open("/now")
    page.get_by_text("Drain…").click()
    page.get_by_role("button", name=re.compile("until it is released$")).click()
    expect(page.locator("main")).to_contain_text("Drained by an operator")
    job = world.submit(stack, "waits", pipeline="dense", reuse="none")
    expect(page.locator("#jobs")).to_contain_text("waits", timeout=SOON)
    page.get_by_role("button", name="Release").click()
    expect(page.locator("main")).not_to_contain_text("Drained by an operator")
    stack.wait(job, ended)


def test_a_walk_from_now_to_a_sample_takes_no_mouse(seen: Seen) -> None:
    page = seen.open("/now")
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement.textContent") != "Jobs":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs")
    page.keyboard.press("/")
    page.keyboard.type("gate")
    page.keyboard.press("Enter")
    page.wait_for_url("**name_contains=gate**")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/jobs/*-*")
    while page.evaluate("document.activeElement.textContent") != "Samples":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/samples")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/samples/*")
    expect(page.locator("h1")).to_contain_text("Sample 0, repeat 0 of gate")
