"""Whether a graph has the relations that rules name."""

import pytest

from shared.contracts.rules import Atom, Rule
from shared.errors import Invalid
from shared.rules.vocabulary import only_known


def rules(*names: str) -> list[Rule]:
    head = Atom("r", 0, 1)
    return [Rule(head=head, body=(Atom(name, 0, 1),), support=1, body_size=1, confidence=1) for name in names]


def test_rules_of_known_relations_pass() -> None:
    assert list(only_known(rules("r", "s"), {"r", "s", "t"}, "g")) == rules("r", "s")


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("ab", "name 2 relations that graph 'g' does not have: 'r', 'a'$"),
        ("abcdefgh", "'r', 'a', 'c', 'd', 'e' and 3 more"),
    ],
)
def test_unknown_relations_are_named_in_the_order_in_which_they_come(names: str, said: str) -> None:
    with pytest.raises(Invalid, match=said):
        list(only_known(rules(*names), {"b"}, "g"))
