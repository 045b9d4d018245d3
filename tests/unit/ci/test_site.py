"""What `make docs` does besides Zensical: the index for language models, and the check of the built site."""

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from shared.settings import REPOSITORY

CI = REPOSITORY / ".ci"
GOOD = '<h1 id="top">A</h1><a href="b.html#there">b</a><img src="c.png"><a href="https://example.org">x</a>'


@pytest.fixture
def links(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "a.html").write_text(GOOD)
    (tmp_path / "b.html").write_text('<h2 id="there">B</h2><a href="a.html">a</a>')
    (tmp_path / "c.png").write_text("")
    names = runpy.run_path(str(CI / "site_links.py"))
    names["main"].__globals__["SITE"] = tmp_path
    return names


def test_a_site_without_dead_links_passes(links: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert links["main"]() == 0
    assert capsys.readouterr().out == "2 pages, 0 dead links\n"


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ('<a href="d.html">d</a>', "d.html leads nowhere"),
        ('<a href="b.html#here">b</a>', "b.html#here names an anchor that is not there"),
        ('<a href="#bottom">down</a>', "#bottom names an anchor that is not there"),
        ('<img src="d.png">', "d.png leads nowhere"),
        ('<script src="https://example.org/x.js"></script>', "https://example.org/x.js is loaded from elsewhere"),
        ('<link href="//example.org/font.css" rel="stylesheet">', "//example.org/font.css is loaded from elsewhere"),
    ],
)
def test_a_dead_link_and_what_is_loaded_from_elsewhere_are_named(
    links: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], added: str, said: str
) -> None:
    (tmp_path / "a.html").write_text(GOOD + added)
    assert links["main"]() == 1
    assert f"a.html: {said}\n" in capsys.readouterr().out


def test_the_index_for_language_models_names_every_page_with_its_title() -> None:
    index = runpy.run_path(str(CI / "llms.py"))["index"]()
    named = dict(re.findall(r"^- \[(.+?)\]\(([^)]+)\)", index, re.MULTILINE))
    navigation = (REPOSITORY / "mkdocs.yml").read_text("utf-8").partition("\nnav:")[2]
    assert sorted(named.values()) == sorted(re.findall(r"[\w/-]+\.md", navigation))
    assert named["Exit codes"] == "reference/exit-codes.md"
