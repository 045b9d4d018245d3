"""The reproduction of RuleRAG: its setting, and what its page says of results."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mathrag.errors import Invalid
from services.orchestrator.experiments.grid import expand
from shared.calls import TLogic
from shared.experiments import Experiment
from shared.pages.figures import write_all
from shared.pages.pages import find_block_names, rewrite_blocks
from shared.params import out_of_range
from shared.settings import REPOSITORY
from shared.storage.configurations import SHIPPED
from tools.reproduction import rule_findings, rule_setting, rules
from tools.reproduction.rule_setting import MEASURES, Graph, Part, Setting

# The committed settings: what the service takes, and what is asked for.


SETTING = rule_setting.read_setting()
KINSHIP = SETTING.graphs["kinship"]
NAMES = {"corpus": "kinship-0123abcd", "rules": "kinship-0123abcd", "dataset": "kinship-0123abcd-test"}


@pytest.mark.parametrize("embeddings", ["shipped", "tuned"])
def test_the_arms_are_an_experiment_that_the_service_takes(embeddings: str) -> None:
    arms = [arm for arm in SETTING.arms if arm.embeddings == embeddings]
    asked = Experiment.model_validate(rules.write_experiment(SETTING.params, arms, NAMES, {}))
    assert len(expand(asked, SHIPPED, {}, most=1000).jobs) == len(arms)


def test_every_arm_s_parameters_are_within_their_ranges() -> None:
    for graph in SETTING.graphs.values():
        assert [found for arm in SETTING.arms for found in out_of_range(SETTING.params_of(arm, graph))] == []


def test_standard_retrieval_is_asked_a_thousand_questions_about_both_graphs() -> None:
    assert SETTING.questions == 1000
    assert list(SETTING.graphs) == ["kinship", "icews14"]
    assert [SETTING.arm(name).pipeline for name in SETTING.baselines] == ["hybrid", "rulerag"]


def test_an_ablation_differs_from_icl_in_what_it_is_called_by_alone() -> None:
    icl = SETTING.params_of(SETTING.arm("icl"), KINSHIP)
    for name, field in {"retrieval": "use", "generation": "use", "random": "order", "worst": "order", "one": "most",
                        "five": "most", "plain": "most", "icl-dense": "index",
                        "searches": "width"}.items():  # fmt: skip
        params = SETTING.params_of(SETTING.arm(name), KINSHIP)
        assert params.generate == icl.generate
        differing = [
            each for each in icl.rulerag.__struct_fields__
            if getattr(params.rulerag, each) != getattr(icl.rulerag, each)
        ]  # fmt: skip
        assert differing == [field]


def test_other_settings_or_models_are_another_experiment() -> None:
    name = rules.write_experiment(SETTING.params, SETTING.arms, NAMES, {"generator": "a"})["name"]
    assert rules.write_experiment(SETTING.params, SETTING.arms, NAMES, {"generator": "a"})["name"] == name
    assert rules.write_experiment(SETTING.params, SETTING.arms, NAMES, {"generator": "b"})["name"] != name
    assert rules.write_experiment(SETTING.params, SETTING.arms[1:], NAMES, {"generator": "a"})["name"] != name


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: dense,", "name: standard,", "'standard' is defined twice"),
        ("[standard, icl]", "[standard, best]", "'best' is not an arm"),
        ("questions: 1000", "questions: 0", "questions"),
        ("questions: 1000", "question: 1000", "question"),
    ],
)
def test_settings_that_cannot_be_used_are_refused_with_the_reason(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(rule_setting.SETTINGS.read_text().replace(old, new, 1))
    with pytest.raises(Invalid, match=said):
        rule_setting.read_setting(file)


# The parts of a graph's facts.

FACTS = "a\tmeet\tb\t2014-10-31\na\tmeet\tc\t2014-11-01\nb\tvisit\ta\t2014-11-02\n"
THREE_PARTS = Graph(
    title="T",
    facts=Part(file="all.txt", before="2014-11-01"),
    training=Part(file="all.txt", since="2014-11-01", before="2014-11-02"),
    test=Part(file="all.txt", since="2014-11-02"),
    mining=TLogic(),
)


def test_a_day_belongs_to_one_part(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text(FACTS)
    files = rule_setting.write(THREE_PARTS, tmp_path, tmp_path / "parts")
    assert "".join(file.read_text() for file in files.values()) == FACTS
    assert [file.read_text().count("\n") for file in files.values()] == [1, 1, 1]


def test_a_part_without_facts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text(FACTS.replace("2014", "2015"))
    with pytest.raises(Invalid, match=r"all\.txt has no fact from the first to 2014-11-01"):
        rule_setting.write(THREE_PARTS, tmp_path, tmp_path / "parts")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"all\.txt") as refused:
        rule_setting.sources(THREE_PARTS, tmp_path)
    assert "docs/reference/rule-reproduction.md" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("asked", "left"),
    [
        ("On 2014-11-01, a meet whom or what?", 2),
        ("On 2014-11-01, Who or what meet c?", 2),
        ("On 2014-11-01, Who or what meet a?", 3),
        ("On 2014-11-05, a meet whom or what?", 3),
    ],
)
def test_no_model_is_tuned_on_a_question_that_is_measured(tmp_path: Path, asked: str, left: int) -> None:
    (tmp_path / "all.txt").write_text(FACTS)
    gone = rule_setting.without_asked(tmp_path / "all.txt", {asked}, tmp_path / "kept.tsv")
    kept = (tmp_path / "kept.tsv").read_text().splitlines()
    assert (len(kept), gone) == (left, 3 - left)


def test_facts_without_times_are_asked_for_without_one(tmp_path: Path) -> None:
    (tmp_path / "all.tsv").write_text("a\tmeet\tb\nb\tmeet\ta\n")
    assert rule_setting.without_asked(tmp_path / "all.tsv", {"a meet whom or what?"}, tmp_path / "kept.tsv") == 1


# Made-up results of the reproduction of RuleRAG.

Json = dict[str, Any]


def invented_results(setting: Setting, differences: Mapping[tuple[str, str], float | None] | None = None) -> Json:
    """Results of all arms on all graphs, in which everything is alike.

    Args:
        differences: by arm and baseline what is seen instead, by every measure on every graph; None: it was left out.
    """
    made = {name: graph(setting, differences or {}, each.title) for name, each in setting.graphs.items()}
    about = {
        "ended": "2026-11-23T01:00:00", "commit": "abc", "settings_commit": "def", "settings_changed": False,
        "machine": "2 processor cores", "minutes": 1.0, "generator": "0123456789abcdef",
    }  # fmt: skip
    return {"about": about, "setting": msgspec.to_builtins(setting), "graphs": made}


def graph(setting: Setting, differences: Mapping[tuple[str, str], float | None], title: str) -> Json:
    """One graph of them."""
    gone = {arm for (arm, _), value in differences.items() if value is None}
    names = [arm.name for arm in setting.arms if arm.name not in gone]
    found = {
        baseline: {arm: pair(differences.get((arm, baseline), 0.0)) for arm in names if arm != baseline}
        for baseline in setting.baselines
    }
    return {
        "title": title, "miner": "amie", "facts": 3206, "relations": 25, "rules": 2452, "questions": 1000,
        "counts": {"available": 2000, "with_leads": 900},
        "training": 500, "arms": {arm: job() for arm in names}, "pairs": dict.fromkeys(MEASURES, found),
        "scores": {measure: {arm: score(0.3) for arm in names} for measure in MEASURES},
        "left_out": {}, "seconds": {},
    }  # fmt: skip


def pair(difference: float | None) -> Json:
    """An arm against a baseline, as a comparison has it: told apart where there is a difference."""
    value = difference or 0.0
    interval = {"value": value, "low": value - 0.02, "high": value + 0.02}
    p = 0.0001 if value else 0.8
    return {"difference": interval, "separable": bool(value), "adjusted": p, "p": p, "items": 1000, "words": "?"}


def score(value: float | None) -> Json:
    """A share with its interval."""
    return {"items": 1000, "value": value, "low": 0.28, "high": 0.32}


def job() -> Json:
    """What a job took."""
    calls = {"generate": 600, "retrieve": 2000, "rules": 900}
    return {
        "job": "0f", "audit": "clean", "seconds": 21.4, "model_loads": 1, "calls_made": calls,
        "calls_reused": {"generate": 400}, "failures": {}, "fallbacks": {}, "truncated": 0,
    }  # fmt: skip


# From results to the words, tables and figures of the page.

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
    found = invented_results(SETTING, {("icl", "standard"): 0.1})
    del found["graphs"]["icews14"]
    found["graphs"]["kinship"]["pairs"] = {
        measure: {**pairs, "standard": {**pairs["standard"], "icl": pair(value)}}
        for (measure, pairs), value in zip(
            found["graphs"]["kinship"]["pairs"].items(), (0.1, 0.1, 0, -0.1, 0), strict=True
        )
    }
    (line,) = (
        each for each in rule_findings.claims(found).splitlines() if each.startswith("| Rules in retrieval and prompt")
    )
    assert line.endswith("| Kinship: R@1, R@5 | Kinship: exact match | Kinship: R@10, token F1 |")


def test_arms_that_do_not_help_are_named() -> None:
    found = invented_results(SETTING, {("icl", "standard"): 0.1, ("dense", "standard"): -0.1})
    assert "icl" not in rule_findings.never_higher(found, "standard")
    assert {"dense", "sparse"} <= set(rule_findings.never_higher(found, "standard"))
    assert rule_findings.sometimes_lower(found, "standard") == ["dense"]
    assert "Lower by some measure on some graph: dense alone." in rule_findings.claims(found)


def test_an_arm_that_was_left_out_is_neither_help_nor_harm() -> None:
    found = invented_results(SETTING, {("ft", "standard"): None})
    assert "ft" not in rule_findings.arms(found)
    assert "ft" not in rule_findings.never_higher(found, "standard")
    assert "not measured" in rule_findings.tabulate_published(found)


def test_gains_stand_beside_those_of_the_authors() -> None:
    text = rule_findings.tabulate_published(invented_results(SETTING, {("icl", "standard"): 0.101}))
    assert "| RuleQA-I (ICEWS14) | 14.1 → 24.2 (+10.1), 5.2 → 9.8 (+4.6) | 14.1 → 45.1 (+31.0)," in text
    assert "| **Kinship**, here | 30.0 → 30.0 (+10.1, +8.1 to +12.1)," in text


def test_the_number_of_rules_is_compared_among_arms_that_differ_in_nothing_else() -> None:
    counted = rule_findings.list_numbered_arms(invented_results(SETTING))
    assert counted == [("plain", 0), ("one", 1), ("icl", 3), ("five", 5)]


def test_a_score_without_a_spread_has_no_interval() -> None:
    found = invented_results(SETTING)
    found["graphs"]["kinship"]["scores"]["score"]["icl"] |= {"low": None, "high": None}
    assert "| 30.0 |" in rule_findings.scores(found)
    assert list(rule_findings.figures(found))


def test_settings_that_were_changed_after_their_commit_are_confessed() -> None:
    found = invented_results(SETTING)
    assert "settings of commit def" in rule_findings.run(found)
    assert "differed from the committed ones" not in rule_findings.run(found)
    found["about"]["settings_changed"] = True
    assert "differed from the committed ones" in rule_findings.run(found)


def test_every_block_of_the_page_is_computed_and_every_computed_block_is_on_it() -> None:
    text = PAGE.read_text()
    assert sorted(find_block_names(text)) == sorted(rule_findings.BLOCKS)
    assert "Nothing was measured yet" not in rewrite_blocks(text, rule_findings.blocks(invented_results(SETTING)))


def test_every_figure_that_the_page_shows_is_drawn(tmp_path: Path) -> None:
    found = invented_results(SETTING)
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
    setting = json.loads(msgspec.json.encode(SETTING))
    assert setting["params"]["rulerag"].pop("question") is False  # The release that measured searched by rules alone.
    assert found["setting"] == setting
    assert not found["about"]["settings_changed"]
