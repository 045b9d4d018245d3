"""TLogic's JSON, whose relations are numbers."""

import json
from typing import Any

import pytest

from shared.contracts.rules import Atom, Rule
from shared.errors import Invalid, TooLarge
from shared.ingest.rules import tlogic
from shared.ingest.rules.limits import DEFAULT
from tests.unit.shared.ingest.rules.reading_files import incoming

PLAIN = {"visit": 0, "sign": 1}


def learned(head: int, body: list[int], constraints: list[list[int]] | None = None, **more: Any) -> dict[str, Any]:
    figures = {"conf": 0.833333, "rule_supp": 5, "body_supp": 6}
    return {"head_rel": head, "body_rels": body, "var_constraints": constraints or []} | figures | more


def read(document: Any, numbers: Any = PLAIN) -> list[Rule]:
    raw = document if isinstance(document, bytes) else json.dumps(document).encode()
    both = tlogic.join_files(raw, json.dumps(numbers).encode())
    return list(incoming(both).rules)


def test_a_rule_leads_from_0_to_1() -> None:
    assert read({"1": [learned(1, [0])]}) == [
        Rule(head=Atom("sign", 0, 1), body=(Atom("visit", 0, 1),), support=5, body_size=6, confidence=0.833333)
    ]


def test_an_inverse_relation_is_the_relation_with_its_terms_exchanged() -> None:
    (rule,) = read({"3": [learned(3, [2, 1, 0])]})
    assert rule.head == Atom("sign", 1, 0)
    assert rule.body == (Atom("visit", 2, 0), Atom("sign", 2, 3), Atom("visit", 3, 1))


def test_a_map_may_name_inverse_relations_itself() -> None:
    numbers = {"_sign": 0, "sign": 1, "visit": 2, "_visit": 3, "_odd": 4}
    (rule,) = read({"0": [learned(0, [3, 4])]}, numbers)
    assert (rule.head, rule.body) == (Atom("sign", 1, 0), (Atom("visit", 2, 0), Atom("_odd", 2, 1)))


@pytest.mark.parametrize(
    ("constraints", "terms"),
    [
        ([[0, 2]], [(0, 2), (2, 0), (0, 1)]),
        ([[1, 3]], [(0, 1), (1, 2), (2, 1)]),
        ([[0, 2], [1, 3]], [(0, 1), (1, 0), (0, 1)]),
        ([[0, 3]], [(0, 2), (2, 3), (3, 0)]),
    ],
)
def test_equal_entities_are_one_variable(constraints: list[list[int]], terms: list[tuple[int, int]]) -> None:
    (rule,) = read({"0": [learned(0, [1, 1, 1], constraints)]})
    assert [(atom.subject, atom.object) for atom in rule.body] == terms
    assert rule.head == Atom("visit", 0, 0 if [0, 3] in constraints else 1)


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            {"1": [learned(1, [0]), learned(1, [9])]},
            "rule 2 of head relation 1: relation 9 is not in `relation2id`",
        ),
        ({"1": [learned(1, [])]}, "rule 1 of head relation 1: Expected `array` of length >= 1 - at `$.body_rels`"),
        ({"1": [learned(1, [0], conf=1.5)]}, "Expected `float` <= 1.0 - at `$.conf`"),
        ({"1": [{"head_rel": 1}]}, "missing required field `body_rels`"),
        ({"1": [learned(1, [0], [[0, 7]])]}, "names place 7 of a body of 1 atoms"),
        (b'{"1": [{"head_rel": 1, "bo', "is not TLogic's JSON, lists of rules by head relation ("),
        ([learned(1, [0])], "is not TLogic's JSON"),
        (b"[" * 9999, "is not TLogic's JSON"),
        ({"1": [learned(1, [0], rule_supp=10**19)]}, "Expected `int` <= 1000000000000000000"),
        (b'{"1": "\xff"}', "is not TLogic's JSON"),
    ],
)
def test_what_is_not_tlogics_is_refused_with_its_place(document: Any, said: str) -> None:
    with pytest.raises(Invalid) as refused:
        read(document)
    assert said in str(refused.value)


@pytest.mark.parametrize("numbers", [{"a": 0, "b": 0}, {"a": "0"}, ["a"], {"a": -1}])
def test_a_map_that_is_none_is_refused(numbers: Any) -> None:
    with pytest.raises(Invalid, match=r"FILE: .*relation2id"):
        read({}, numbers)


def test_a_file_without_the_map_is_refused() -> None:
    with pytest.raises(Invalid, match="numbers instead of relation names") as refused:
        list(incoming(json.dumps({"1": [learned(1, [0])]}).encode()).rules)
    assert "relation2id.json" in str(refused.value.hint)


def test_a_document_that_is_too_long_to_hold_is_refused() -> None:
    with pytest.raises(TooLarge, match="FILE is longer than 10 bytes"):
        incoming(b'{"visit":0}', limits=DEFAULT._replace(document_bytes=10))
