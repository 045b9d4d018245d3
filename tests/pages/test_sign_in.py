"""A stack that asks for keys: sign in, what a key may, sign out, and what other sites get."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.pages.browser import looking
from tests.running import RunningStack, mathrag, running_stack


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    folder = tmp_path_factory.mktemp("locked")
    with running_stack(folder / "data", MATHRAG_ACCESS__KEYS="required") as running:
        yield running


def key(stack: RunningStack, name: str, *scopes: str) -> str:
    options = [word for scope in scopes for word in ("--scope", scope)]
    made = mathrag("key", "create", name, *options, "--data-dir", str(stack.data_dir))
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


def sign_in(page: Page, secret: str) -> None:
    page.get_by_label("API key").fill(secret)
    page.get_by_role("button", name="Sign in").click()


def test_a_visitor_signs_in_comes_where_he_wanted_and_signs_out(browser: Browser, locked: RunningStack) -> None:
    with looking(browser, locked.url) as window:
        page = window.open("/jobs?state=failed")
        sign_in(page, key(locked, "reader", "read"))
        page.wait_for_url("**/jobs?state=failed")
        assert page.evaluate("document.cookie") == ""
        assert window.inaccessible() == []
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_label("API key")).to_be_visible()
        window.open("/jobs")
        expect(page.get_by_label("API key")).to_be_visible()
        assert window.wrong == []


def test_a_wrong_key_is_said_to_be_wrong(browser: Browser, locked: RunningStack) -> None:
    with looking(browser, locked.url) as window:
        page = window.open("/")
        sign_in(page, "mrg_wrong")
        expect(page.get_by_role("alert")).to_contain_text("not valid")
        window.shot("sign-in-wrong")


def test_only_what_a_key_allows_is_offered(browser: Browser, locked: RunningStack) -> None:
    with looking(browser, locked.url) as window:
        page = window.open("/")
        sign_in(page, key(locked, "looker", "read"))
        expect(page.locator("h1")).to_have_text("Four steps to the first result")
        expect(page.get_by_role("link", name="Submit", exact=True)).to_have_count(0)
        window.open("/now")
        expect(page.get_by_text("Drain…")).to_have_count(0)
        window.open("/submit")
        expect(page.get_by_role("button", name="Submit", exact=True)).to_have_count(0)


def test_a_page_of_another_site_changes_nothing(browser: Browser, locked: RunningStack) -> None:
    with looking(browser, locked.url) as window:
        page = window.open("/")
        sign_in(page, key(locked, "operator", "read", "operate"))
        expect(page.locator("h1")).to_have_text("Four steps to the first result")
        page.goto(
            "data:text/html,<form method=post action='" + locked.url + "/gpus/cpu:0/drain'><button>go</button></form>"
        )
        page.get_by_role("button").click()
        page.wait_for_load_state()
        window.open("/now")
        expect(page.locator("main")).not_to_contain_text("Drained by an operator")


def test_an_operator_gives_and_takes_keys_without_scripts(browser: Browser, locked: RunningStack) -> None:
    with looking(browser, locked.url, java_script_enabled=False) as window:
        page = window.open("/keys")
        sign_in(page, key(locked, "giver", "operate"))
        page.get_by_label("Name").fill("given")
        page.get_by_label("read", exact=True).check()
        page.get_by_role("button", name="Create", exact=True).click()
        first = page.locator("pre").text_content()
        row = window.open("/keys").locator("tr", has_text="given")
        expect(page.locator("pre")).to_have_count(0)
        row.get_by_text("Rotate…").click()
        row.get_by_role("button", name="Rotate given").click()
        assert page.locator("pre").text_content() not in (first, None)
        window.open("/keys")
        for prefix in page.locator("tr", has_text="given").locator("code").all_text_contents():
            row = page.locator("tr", has_text=prefix)
            row.get_by_text("Revoke…").click()
            row.get_by_role("button", name=f"Revoke {prefix} permanently").click()
            expect(row.get_by_text("revoked")).to_be_visible()
        assert window.wrong == []
