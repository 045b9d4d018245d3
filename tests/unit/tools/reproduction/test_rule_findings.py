"""From results to the words, tables and figures of the page."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shared.pages.figures import write_all
from shared.pages.pages import find_block_names, rewrite_blocks
from shared.settings import REPOSITORY
from tests.unit.tools.reproduction import invented
from tools.reproduction import rule_findings, rule_setting

SETTING = rule_setting.read_setting()
DOCS = REPOSITORY / "docs" / "reference"
PAGE = DOCS / "rule-reproduction.md"


@pytest.mark.parametrize(
    ("separable", "difference", "said"),
    [
        (True, 0.1, "higher"),
        (True, -0.1, "lower"),
        (False, 0.3, "not distinguishable"),
        (False, -0.3, "not distinguishable"),
    ],
)
def test_nothing_is_higher_or_lower_that_the_corrected_test_does_not_tell_apart(
    separable: bool, difference: float, said: str
) -> None:
    assert rule_findings.verdict({"separable": separable, "difference": {"value": difference}}) == said


def test_a_claim_names_graphs_and_measures_by_what_was_found() -> None:
    found = invented.results(SETTING, {("icl", "standard"): 0.1})
    del found["graphs"]["icews14"]
    found["graphs"]["kinship"]["pairs"] = {
        measure: {**pairs, "standard": {**pairs["standard"], "icl": invented.pair(value)}}
        for (measure, pairs), value in zip(
            found["graphs"]["kinship"]["pairs"].items(), (0.1, 0.1, 0, -0.1, 0), strict=True
        )
    }
    (line,) = (
        each for each in rule_findings.claims(found).splitlines() if each.startswith("| Rules in retrieval and prompt")
    )
    assert line.endswith("| Kinship: R@1, R@5 | Kinship: exact match | Kinship: R@10, token F1 |")


def test_arms_that_do_not_help_are_named() -> None:
    found = invented.results(SETTING, {("icl", "standard"): 0.1, ("dense", "standard"): -0.1})
    assert "icl" not in rule_findings.never_higher(found, "standard")
    assert {"dense", "sparse"} <= set(rule_findings.never_higher(found, "standard"))
    assert rule_findings.sometimes_lower(found, "standard") == ["dense"]
    assert "Lower by some measure on some graph: dense alone." in rule_findings.claims(found)


def test_an_arm_that_was_left_out_is_neither_help_nor_harm() -> None:
    found = invented.results(SETTING, {("ft", "standard"): None})
    assert "ft" not in rule_findings.arms(found)
    assert "ft" not in rule_findings.never_higher(found, "standard")
    assert "not measured" in rule_findings.tabulate_published(found)


def test_gains_stand_beside_those_of_the_authors() -> None:
    text = rule_findings.tabulate_published(invented.results(SETTING, {("icl", "standard"): 0.101}))
    assert "| RuleQA-I (ICEWS14) | 14.1 → 24.2 (+10.1), 5.2 → 9.8 (+4.6) | 14.1 → 45.1 (+31.0)," in text
    assert "| **Kinship**, here | 30.0 → 30.0 (+10.1, +8.1 to +12.1)," in text


def test_the_number_of_rules_is_compared_among_arms_that_differ_in_nothing_else() -> None:
    counted = rule_findings.list_numbered_arms(invented.results(SETTING))
    assert counted == [("plain", 0), ("one", 1), ("icl", 3), ("five", 5)]


def test_a_score_without_a_spread_has_no_interval() -> None:
    found = invented.results(SETTING)
    found["graphs"]["kinship"]["scores"]["score"]["icl"] |= {"low": None, "high": None}
    assert "| 30.0 |" in rule_findings.scores(found)
    assert list(rule_findings.figures(found))


def test_settings_that_were_changed_after_their_commit_are_confessed() -> None:
    found = invented.results(SETTING)
    assert "settings of commit def" in rule_findings.run(found)
    assert "not as they were committed" not in rule_findings.run(found)
    found["about"]["settings_changed"] = True
    assert "not as they were committed" in rule_findings.run(found)


def test_every_block_of_the_page_is_computed_and_every_computed_block_is_on_it() -> None:
    text = PAGE.read_text()
    assert sorted(find_block_names(text)) == sorted(rule_findings.BLOCKS)
    assert "Nothing was measured yet" not in rewrite_blocks(text, rule_findings.blocks(invented.results(SETTING)))


def test_every_figure_that_the_page_shows_is_drawn(tmp_path: Path) -> None:
    found = invented.results(SETTING)
    shown = re.findall(r"\]\(figures/([^)]+)\.svg\)", "".join(rule_findings.blocks(found).values()))
    assert set(shown) == set(write_all(rule_findings.figures(found), tmp_path))
    assert {file.suffix for file in tmp_path.iterdir()} == {".svg", ".json"}


def results() -> Any:
    file = DOCS / "results" / "rules.json"
    if not file.exists():
        pytest.skip("nothing was measured yet: make reproduce-rules")
    return json.loads(file.read_text())


def test_the_numbers_in_the_text_are_those_of_the_committed_results() -> None:
    assert rewrite_blocks(PAGE.read_text(), rule_findings.blocks(results())) == PAGE.read_text()


def test_the_committed_results_are_of_the_committed_settings() -> None:
    found = results()
    assert found["setting"] == json.loads(msgspec.json.encode(SETTING))
    assert not found["about"]["settings_changed"]
