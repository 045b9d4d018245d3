"""Rules as a sample shows them, and as a report's lines do."""

from typing import Any

from mathrag.report.lines import guided
from mathrag.report.rules import bringing, rules

FIGURE = {"value": 0.5, "low": 0.1, "high": 0.9, "correct": 1, "graded": 2}


def test_a_sample_names_its_rules_and_what_each_brought() -> None:
    """Other decisions are none."""
    told: dict[str, Any] = {"rule": "[..] leads to [..]", "number": 12.0, "certainty": 0.25}
    decisions = [
        {"stage": "relation", "action": "named"},
        {"stage": "rule", "action": "search", "detail": {**told, "documents": ["a", "b"]}},
        {"stage": "rule", "action": "prompt", "detail": told},
    ]
    assert list(rules(decisions)) == [
        ("rule 12", "[..] leads to [..] (0.250): 2 documents"),
        ("rule 12", "[..] leads to [..] (0.250): in the prompt alone"),
    ]


def test_a_document_names_the_rules_that_brought_it() -> None:
    """And no other path."""
    assert bringing({"paths": {"rule 3": 1, "rule 12": 4}}) == "rule 3, rule 12"
    assert bringing({"paths": {"original dense": 1}}) == bringing({"paths": None}) == bringing({}) == ""


def test_a_report_says_what_rules_did() -> None:
    """In a line for all, and one for each of the first; nothing where no rule was looked for."""
    rule = {"number": 7, "rule": "[..]", "certainty": 0.5, "samples": 3, "documents": 9, "accuracy": FIGURE}
    found = {
        "bank": "b", "used": 8, "unguided": 2, "with_rules": FIGURE, "without_rules": FIGURE, "rules": [rule] * 8,
    }  # fmt: skip
    lines = dict(guided(found))
    assert str(lines["rules"]).startswith("8 of b: 50.0 %")
    assert "2 without a rule: 50.0 %" in str(lines["rules"])
    assert str(lines["rule 7"]).startswith("[..] (0.500): 3 samples, 9 documents, 50.0 %")
    assert len(list(guided(found))) == 1 + 5
    assert list(guided(None)) == []
