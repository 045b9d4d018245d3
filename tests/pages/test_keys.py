"""Everything can be reached by keyboard alone."""

from playwright.sync_api import expect

from tests.pages.browser import Seen


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


def test_a_question_mark_lists_the_keys(seen: Seen) -> None:
    page = seen.open("/doctor")
    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
