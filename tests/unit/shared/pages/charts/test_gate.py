"""The gate's decision, drawn and put into words."""

import re

import pytest
from msgspec.structs import replace

from shared.pages.charts import draw_ruler, draw_scatter
from shared.pages.lines import explain_decision
from shared.samples import GateDecision, Strategy

DECISION = GateDecision(
    strategy=Strategy.JUDGE, reason="rho = 0.200 <= tau = 0.45: judge", tau=0.45, rho=0.2, low=0.1, high=0.3,
    spearman=0.2, documents=("a", "b", "c"), rule_scores=(0.0, 1.0, 1.0), judge_scores=(0.0, 1.0, 1.0), asked=3,
    unparsed=0,
)  # fmt: skip


def test_a_pair_of_scores_is_a_dot_at_its_place() -> None:
    dots = re.findall(r'class="dots" stroke-width="([\d.]+)" d="([^"]+)"', draw_scatter(DECISION))
    assert [place for _, place in dots] == ["M234.0 8.0h0", "M34.0 208.0h0"]
    assert float(dots[0][0]) > float(dots[1][0])


def test_the_ruler_shows_rho_between_its_bounds_and_tau() -> None:
    drawn = draw_ruler(replace(DECISION, rho=0.0, low=-1.0, high=1.0, tau=0.5))
    assert 'd="M10.0 30H250.0"' in drawn
    assert 'cx="130.0"' in drawn
    assert 'd="M190.0 16V40"' in drawn


def test_without_rho_there_is_no_ruler_and_without_bounds_no_interval() -> None:
    assert draw_ruler(replace(DECISION, rho=None, low=None, high=None)) == ""
    assert "interval" not in draw_ruler(replace(DECISION, low=None, high=None))


def test_a_gate_without_documents_has_an_empty_scatter() -> None:
    assert "dots" not in draw_scatter(replace(DECISION, documents=(), rule_scores=(), judge_scores=()))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, "Rules agree too little with the judge (rho = 0.200 on 3 documents, not more than tau = 0.45)"),
        ({"high": 0.5}, "It is a close call: the interval of rho, 0.100 to 0.500, contains tau."),
        ({"strategy": Strategy.RULES, "rho": 0.6, "low": 0.5, "high": 0.7}, "rules score."),
        ({"rho": None, "low": None, "high": None}, "There are too few data to trust rules here"),
        ({"reason": "3 scored documents, fewer than the 30 needed: judge"}, "There are too few data"),
        ({"asked": 0, "strategy": Strategy.VERIFIER}, "The job sets who scores: verifier."),
        ({"asked": 9, "unparsed": 6, "strategy": Strategy.RULES}, "no rating in 6 of 9 replies, so rules score"),
    ],
)
def test_why_the_strategy_was_chosen_is_said_in_words(changed: dict[str, object], said: str) -> None:
    assert said in explain_decision(replace(DECISION, **changed))  # type: ignore[arg-type]
