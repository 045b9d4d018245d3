"""The committed settings: what the service takes, and what is asked for."""

from pathlib import Path

import pytest

from services.orchestrator.experiments.grid import expand
from shared.errors import Invalid
from shared.experiments import Experiment
from shared.params import out_of_range
from shared.storage.configurations import SHIPPED
from tools.reproduction import rule_setting, rules

SETTING = rule_setting.read_setting()
GRAPH = SETTING.graphs["kinship"]
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
    icl = SETTING.params_of(SETTING.arm("icl"), GRAPH)
    for name, field in {"retrieval": "use", "generation": "use", "random": "order", "worst": "order", "one": "most",
                        "five": "most", "plain": "most", "icl-dense": "index",
                        "searches": "width"}.items():  # fmt: skip
        params = SETTING.params_of(SETTING.arm(name), GRAPH)
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
