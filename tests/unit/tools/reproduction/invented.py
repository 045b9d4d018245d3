"""Made-up results of the reproduction of RuleRAG."""

from collections.abc import Mapping
from typing import Any

import msgspec

from tools.reproduction.rule_setting import MEASURES, Setting

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
