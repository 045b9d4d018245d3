"""Rules as a sample shows them."""

from typing import Any

from shared.pages.lines import describe_rules, name_rules


def test_a_sample_names_its_rules_and_what_each_brought() -> None:
    told: dict[str, Any] = {"rule": "[..] leads to [..]", "number": 12.0, "certainty": 0.25}
    decisions = [
        {"stage": "relation", "action": "named"},
        {"stage": "rule", "action": "search", "detail": {**told, "documents": ["a", "b"]}},
        {"stage": "rule", "action": "prompt", "detail": told},
    ]
    assert list(describe_rules(decisions)) == [
        ("rule 12", "[..] leads to [..] (0.250): 2 documents"),
        ("rule 12", "[..] leads to [..] (0.250): in the prompt alone"),
    ]


def test_a_document_names_the_rules_that_brought_it() -> None:
    assert name_rules({"paths": {"rule 3": 1, "rule 12": 4}}) == "rule 3, rule 12"
    assert name_rules({"paths": {"original dense": 1}}) == name_rules({"paths": None}) == name_rules({}) == ""
