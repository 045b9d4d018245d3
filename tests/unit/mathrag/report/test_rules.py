"""Rules as a report's lines show them."""

from shared.pages.lines import list_guidance

FIGURE = {"value": 0.5, "low": 0.1, "high": 0.9, "correct": 1, "graded": 2}


def test_a_report_says_what_rules_did() -> None:
    rule = {"number": 7, "rule": "[..]", "certainty": 0.5, "samples": 3, "documents": 9, "accuracy": FIGURE}
    found = {
        "bank": "b", "used": 8, "unguided": 2, "with_rules": FIGURE, "without_rules": FIGURE, "rules": [rule] * 8,
    }  # fmt: skip
    lines = dict(list_guidance(found))
    assert str(lines["rules"]).startswith("8 of b: 50.0 %")
    assert "2 without a rule: 50.0 %" in str(lines["rules"])
    assert str(lines["rule 7"]).startswith("[..] (0.500): 3 samples, 9 documents, 50.0 %")
    assert len(list(list_guidance(found))) == 1 + 5
    assert list(list_guidance(None)) == []
