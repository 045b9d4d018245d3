from pathlib import Path

import pytest

from services.orchestrator.experiments.grid import expand
from shared.calls import TLogic
from shared.errors import Invalid
from shared.experiments import Experiment
from shared.params import out_of_range
from shared.storage.configurations import SHIPPED
from tools.reproduction import rule_setting, rules
from tools.reproduction.rule_setting import Graph, Part

# The committed settings: what the service takes, and what is asked for.


SETTING = rule_setting.read_setting()
RULE_SETTING_GRAPH = SETTING.graphs["kinship"]
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
    icl = SETTING.params_of(SETTING.arm("icl"), RULE_SETTING_GRAPH)
    for name, field in {"retrieval": "use", "generation": "use", "random": "order", "worst": "order", "one": "most",
                        "five": "most", "plain": "most", "icl-dense": "index",
                        "searches": "width"}.items():  # fmt: skip
        params = SETTING.params_of(SETTING.arm(name), RULE_SETTING_GRAPH)
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
        ("[standard, icl]", "[standard, best]", "'best' is no arm"),
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
PARTS_GRAPH = Graph(
    title="T",
    facts=Part(file="all.txt", before="2014-11-01"),
    training=Part(file="all.txt", since="2014-11-01", before="2014-11-02"),
    test=Part(file="all.txt", since="2014-11-02"),
    mining=TLogic(),
)


def test_a_day_belongs_to_one_part(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text(FACTS)
    files = rule_setting.write(PARTS_GRAPH, tmp_path, tmp_path / "parts")
    assert "".join(file.read_text() for file in files.values()) == FACTS
    assert [file.read_text().count("\n") for file in files.values()] == [1, 1, 1]


def test_a_part_without_facts_is_refused(tmp_path: Path) -> None:
    (tmp_path / "all.txt").write_text(FACTS.replace("2014", "2015"))
    with pytest.raises(Invalid, match=r"all\.txt has no fact from the first to 2014-11-01"):
        rule_setting.write(PARTS_GRAPH, tmp_path, tmp_path / "parts")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid, match=r"all\.txt") as refused:
        rule_setting.sources(PARTS_GRAPH, tmp_path)
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
