"""Our own file of a bank."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.contracts import canonical
from shared.contracts.mining import TemporalSimple
from shared.contracts.rules import Atom, Rule
from shared.errors import Invalid, InvalidLine
from shared.ingest.rules import bank
from tests.unit.shared.ingest.rules.reading_files import incoming

HEADER = bank.Header(
    format=bank.FORMAT, version=1, miner="temporal-simple", rules=1, hash="a" * 64, graph_hash="b" * 64,
    limits=TemporalSimple(min_head_facts=7),
)  # fmt: skip
RULE = Rule(
    head=Atom("r", 0, 1), body=(Atom("q", 0, 2), Atom("q", 2, 1)), support=3, body_size=9, confidence=1 / 3,
    kind="xy", curve=(0.1, -2e-9),
)  # fmt: skip
FILE = bank.line(HEADER) + bank.line(RULE)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=6)


def read(raw: bytes) -> list[Rule]:
    return list(incoming(raw).rules)


def edited(**changes: object) -> bytes:
    return FILE.replace(canonical.encode(RULE), canonical.encode({**canonical_fields(), **changes}))


def canonical_fields() -> dict[str, object]:
    return {name: getattr(RULE, name) for name in ("head", "body", "support", "body_size", "confidence")}


@given(NAMES, NAMES, st.floats(0, 1), st.lists(st.floats(-9, 9), max_size=3))
def test_what_is_written_is_read_again(relation: str, entity: str, share: float, curve: list[float]) -> None:
    rule = Rule(head=Atom(relation, 0, entity), body=(Atom(relation, 0, 2),), support=1, body_size=2,
                confidence=share, head_coverage=share, functional=1, curve=tuple(curve))  # fmt: skip
    raw = bank.line(HEADER) + bank.line(rule)
    assert read(raw) == [rule]
    assert incoming(raw).header == HEADER


def test_the_first_line_says_what_the_bank_is() -> None:
    first = bank.line(HEADER).decode()
    assert first.startswith(
        f'{{"format":"mathrag-rules","version":1,"hash":"{"a" * 64}","miner":"temporal-simple","rules":1,'
        f'"graph_hash":"{"b" * 64}","limits":{{"miner":"temporal-simple",'
    )
    assert first.endswith('"min_head_facts":7}}\n')


def test_a_file_that_was_cut_off_between_lines_is_refused() -> None:
    with pytest.raises(Invalid, match=r"FILE: holds 0 rules, but its first line says 1"):
        read(bank.line(HEADER))


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (FILE[:-9], "FILE, line 2: is not a rule (Input data was truncated)"),
        (edited(body=[["q", 3, 2]]), "line 2: variable 3 is out of order; number the head's variables"),
        (edited(body=[["q", -1, 1]]), "variable -1 is out of order"),
        (edited(head=["r", 0, 2]), "the head has a variable other than 0 and 1"),
        (edited(body=[["q", 0, 1]] * 17), "has 17 atoms in its body, but at most 16 are read"),
        (edited(confidence=1.5), "a confidence or the head coverage is not from 0 to 1"),
        (edited(support=-1), "a count is not from 0 to"),
        (edited(support=10**19), "a count is not from 0 to"),
        (bank.line(HEADER) + b'{"other":' + b"[" * 9999, "is not a rule (maximum recursion depth"),
        (edited(support="3"), "is not a rule (Expected `int`, got `str` - at `$.support`)"),
        (b'{"format":"mathrag-rules","version":2}\n', "line 1: is not the header of a bank that this release can read"),
    ],
)
def test_an_edited_file_that_holds_no_rule_is_refused_with_its_line(raw: bytes, said: str) -> None:
    with pytest.raises(InvalidLine) as refused:
        read(raw)
    assert said in str(refused.value)
