"""Style sheet, scripts and libraries of the pages."""

from shared.pages import pages


def test_what_reads_events_comes_with_what_starts_it() -> None:
    found = pages.find_asset(pages.asset_path("live.js").removeprefix("/assets/"))
    assert found is not None
    body = found.body.decode()
    assert body.index('version="4.0.1"') < body.index('registerExtension("sse"')


def test_no_file_of_a_library_is_served_twice() -> None:
    assert pages.find_asset("x/htmx-4.0.1/htmx.min.js") is None
    assert pages.find_asset("x/katex-0.19.1/LICENSE") is None
    assert pages.find_asset("x/katex-0.19.1/katex.min.js") is not None
